"""A prediction covers the next output until it is answered or skipped."""

import pytest

from attnbook.exercises.prediction import predict, predict_number

pytestmark = pytest.mark.browser

CHOICES = [("short ones", "They fit."), ("long ones", "One size for all.")]
QUESTION = predict("Which words lose most?", CHOICES, right=1)
NUMBER = predict_number("How many are wrong?", 0, 100, 62.5, unit="%")


PAGE = (
    "<main><h1>A</h1><section><h2>B</h2><p id=before>before</p>"
    '<div class="cell"><div class="cell_output">{}</div></div><p>what to read</p>'
    '<div class="cell">code<div class="cell_output"><i>result</i></div></div>'
    '<p>what it shows</p><div class="cell"><div class="cell_output">later</div></div>'
    "</section></main>"
)


@pytest.fixture
def open_question(shown):
    """Open a section with a question, a text, a result and what follows it."""
    return lambda question: shown(
        {"question": question.state()}, "prediction", around=PAGE
    )


def visible(page):
    page.wait_for_timeout(50)
    texts = ("before", "what to read", "result", "what it shows", "later")
    return [page.get_by_text(x, exact=True).is_visible() for x in texts]


COVERED, OPEN = [True, True, False, True, True], [True] * 5


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


def test_nothing_is_covered_on_paper_or_if_the_reader_wants_all_results(
    open_question,
):
    page = open_question(QUESTION)
    assert visible(page) == COVERED
    page.emulate_media(media="print")
    assert visible(page) == OPEN
    page.emulate_media(media="null")
    page.evaluate("() => (document.documentElement.dataset.results = 'shown')")
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
