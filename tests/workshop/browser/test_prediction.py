"""A prediction covers what follows until it is answered or skipped."""

import pytest

from attnbook.exercises.prediction import predict, predict_number

pytestmark = pytest.mark.browser

CHOICES = [("short ones", "They fit."), ("long ones", "One size for all.")]
QUESTION = predict("Which words lose most?", CHOICES, right=1)
NUMBER = predict_number("How many are wrong?", 0, 100, 62.5, unit="%")


PAGE = (
    "<main><h1>A</h1><section><h2>B</h2><p id=before>before</p>"
    '<div class="cell"><div class="cell_output">{}</div></div>'
    '<div class="cell" id="result">result</div><p>what it shows</p>'
    '<section id="sub"><h3>C</h3></section></section></main>'
)


@pytest.fixture
def open_question(shown):
    """Open a section with a question, a result and a subsection."""
    return lambda question: shown(
        {"question": question.state()}, "prediction", around=PAGE
    )


def visible(page):
    page.wait_for_timeout(50)
    names = ("#before", "#result", "text=what it shows", "#sub")
    return [page.locator(name).is_visible() for name in names]


COVERED, OPEN = [True, False, False, True], [True] * 4


def test_the_result_is_covered_until_the_question_is_answered(open_question):
    page = open_question(QUESTION)
    assert visible(page) == COVERED
    page.get_by_role("button", name="Check").click()
    assert page.inner_text(".quiz-feedback") == "Choose an answer first."
    assert visible(page) == COVERED
    page.get_by_label("short ones").check()
    page.get_by_role("button", name="Check").click()
    status = "✗ We measured something else. They fit."
    assert page.inner_text(".quiz-feedback") == status
    assert visible(page) == OPEN
    assert not page.get_by_text("is covered until you answer").is_visible()


def test_a_question_is_answered_by_keyboard_alone(open_question):
    page = open_question(QUESTION)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    assert visible(page) == COVERED
    page.keyboard.press("Enter")
    assert page.inner_text(".quiz-feedback").startswith("✓ That is what we")
    assert visible(page) == OPEN


def test_a_question_is_skipped_by_mouse_or_keyboard(open_question):
    page = open_question(QUESTION)
    page.get_by_role("button", name="Skip").click()
    assert visible(page) == OPEN
    page.reload()
    assert visible(page) == COVERED
    page.get_by_role("button", name="Skip").focus()
    page.keyboard.press("Enter")
    assert visible(page) == OPEN


def test_a_slider_compares_the_guess_with_what_was_measured(open_question):
    page = open_question(NUMBER)
    page.set_viewport_size({"width": 390, "height": 800})
    assert visible(page) == COVERED
    slider = page.get_by_role("slider", name="How many are wrong?")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert page.inner_text("output") == "51 %"
    page.get_by_role("button", name="Check").click()
    status = "You predicted 51 %; the result is 62.5 %."
    assert page.inner_text(".quiz-feedback") == status
    assert visible(page) == OPEN
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_nothing_is_covered_on_paper_or_at_the_end_of_a_link(open_question):
    page = open_question(QUESTION)
    assert visible(page) == COVERED
    page.emulate_media(media="print")
    assert visible(page)[1:3] == [True, True]
    page.emulate_media(media="null")
    page.evaluate("() => (location.hash = '#result')")
    assert visible(page) == OPEN
    page.reload()
    page.wait_for_selector("[data-state=ready]", state="attached")
    assert visible(page) == OPEN


def test_without_scripts_nothing_is_covered(scriptless, tmp_path):
    mount = QUESTION._repr_mimebundle_()["text/html"]
    file = tmp_path / "page.html"
    file.write_text(f"{mount}<p>the result</p>", "utf8")
    scriptless.goto(file.as_uri())
    assert scriptless.get_by_text("the result").is_visible()
    assert scriptless.get_by_text("Which words lose most?").is_visible()
    scriptless.get_by_text("Answer").click()
    assert scriptless.get_by_text("One size for all.").is_visible()
