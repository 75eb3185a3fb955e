"""Widgets in a real browser, by keyboard and mouse, with good and bad input."""

import pytest

from attnbook.widgets.module import read_modules

pytestmark = pytest.mark.browser


def example(source, output, weights, without, reference=None):
    return {
        "title": " ".join(source)[:40],
        "source": source,
        "reference": reference or output,
        "with": {"output": output, "weights": weights},
        "without": {"output": without},
    }


SHORT = example(
    ["i", "am", "here"],
    ["je", "suis", "ici"],
    [[0.9, 0.1, 0], [0.1, 0.83, 0.07], [0, 0.2, 0.8], [0, 0, 1]],
    ["je", "suis", "là"],
)
OTHER = example(["c", "a", "t"], ["K", "AE", "T"], [[1, 0, 0]] * 3, ["K"])
MANY = [f"word{i}" for i in range(512)]
LONG = example(
    MANY, MANY, [[float(s == t) for s in range(512)] for t in range(512)], MANY
)
FORTY = example(
    MANY[:40],
    ["Donaudampfschifffahrtsgesellschaft" * 2, *MANY[1:40]],
    [[1 / 40] * 40] * 40,
    MANY[:30],
)
ODD = [
    '<img src=x onerror="document.title=1">',
    "</script>",
    "“q\"'",
    "بيت",
    "é́́",
    "🙂",
]


def status(page):
    return page.inner_text("[role=status]")


def test_the_player_works_by_keyboard_alone(shown):
    page = shown({"examples": [SHORT, OTHER]})
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.role") == "switch"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "je"
    page.keyboard.press("ArrowRight")
    assert status(page) == "output 2 of 3, “suis”, attends most to “am” (0.83)"
    assert page.evaluate("document.activeElement.innerText") == "suis"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("End")
    assert status(page) == "the end, attends most to “here” (1.00)"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    assert status(page).startswith("output 1 of 3")


def test_a_button_keeps_the_focus_after_use(shown):
    page = shown({"examples": [SHORT]})
    page.focus("[title=Next]")
    for _ in range(5):
        page.keyboard.press("Enter")
    assert status(page).startswith("the end")
    assert page.evaluate("document.activeElement.title") == "Next"
    assert page.get_attribute("[title=Next]", "aria-disabled") == "true"


def test_the_browsers_own_shortcuts_still_work(shown):
    page = shown({"examples": [SHORT]})
    page.focus(".ap-output button")
    page.keyboard.press("Control+ArrowRight")
    assert status(page).startswith("output 1 of 3")


def test_without_attention_the_same_input_fails_and_it_is_marked(shown):
    page = shown({"examples": [SHORT]})
    assert page.locator(".ap-wrong").count() == 0
    page.click("[role=switch]")
    assert page.get_attribute("[role=switch]", "aria-checked") == "false"
    assert page.inner_text(".ap-wrong").split() == ["là✗", "differs"]
    assert "there are no weights" in status(page)
    assert not page.is_visible(".ap-map")
    assert "with attention 0, without 1" in page.inner_text(".ap-verdict")


def test_another_example_is_chosen_and_played_to_its_end(shown):
    page = shown({"examples": [SHORT, OTHER]}, own=True)
    page.clock.install()
    page.select_option("select", "1")
    assert page.locator(".ap-source li").count() == 3
    page.click("[title=Play]")
    assert page.locator("[title=Pause]").count() == 1
    page.clock.run_for(5000)
    assert status(page).startswith("output 3 of 3, “T”")
    assert page.locator("[title=Play]").count() == 1


def test_lines_connect_the_output_to_the_words_it_attends_to(shown):
    page = shown({"examples": [SHORT]})
    assert page.locator(".ap-lines path").count() == 2
    page.click("[title=Last]")
    assert page.locator(".ap-lines path").count() == 1


def test_the_map_follows_the_step_and_the_mouse(shown):
    page = shown({"examples": [SHORT]})
    box = page.locator(".ap-map").bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] * 0.4)
    assert status(page).startswith("output 2 of 3")
    assert page.evaluate("document.querySelector('.ap-mark').style.top") == ("25%")


@pytest.mark.parametrize("made", [FORTY, LONG], ids=["40", "512"])
def test_long_inputs_fit_a_phone_and_respond(shown, made):
    page = shown({"examples": [made]})
    page.set_viewport_size({"width": 320, "height": 640})
    over = "document.documentElement.scrollWidth - window.innerWidth"
    assert page.evaluate(over) <= 0
    page.click("[title=Next]")
    assert status(page).startswith("output 2 of")
    foot = page.locator(".ap-foot").bounding_box()
    assert foot["y"] + foot["height"] <= 641  # stays in sight


def test_labels_are_rendered_as_text(shown):
    page = shown({"examples": [example(ODD, ODD, [[1, 0, 0, 0, 0, 0]] * 6, [])]})
    assert page.title() == "page"
    assert page.locator("img").count() == 0
    words = page.locator(".ap-source bdi").all_inner_texts()
    assert words == ODD
    page.click("[role=switch]")
    assert status(page) == "the end; without attention there are no weights"


@pytest.mark.parametrize(
    "given",
    [
        [],
        None,
        [{}],
        [None],
        [example(["a"], ["b", "c"], [[float("nan")], None, [1, 2, 3]], [])],
        [example(["one"], ["un"], [[float("inf")]], ["un"])],
        [example(["a"], [], [], [])],
    ],
)
def test_invalid_input_is_drawn_or_reported(shown, given):
    page = shown({"examples": given})
    drawn = page.locator(".ap-source li").count()
    assert drawn == 1 or "There is no example" in page.inner_text(".ap")
    clicks = "document.querySelectorAll('button').forEach(b => b.click())"
    page.evaluate(clicks)
    page.evaluate(clicks)
    assert page.wrong == []


QUIZ = {
    "title": "Quiz",
    "questions": [
        {
            "prompt": [{"text": "Is "}, {"math": "a<b"}, {"code": "x"}],
            "choices": [
                {"content": [{"text": t}], "feedback": [{"text": f"so {t}"}]}
                | {"right": t == "c"}
                for t in "abc"
            ],
        }
    ],
}


def test_arrow_keys_choose_and_enter_answers(shown):
    page = shown(QUIZ, "quiz")
    page.focus("input")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    status_texts = page.locator("[role=status]")
    assert status_texts.all_inner_texts() == ["", ""]
    page.keyboard.press("Enter")
    assert status_texts.all_inner_texts() == [
        "✓ Right. so c",
        "All answered; 1 of 1 right at the first try.",
    ]


def test_a_question_can_be_answered_again_after_a_wrong_answer(shown):
    page = shown(QUIZ, "quiz")
    page.click("text=Check")
    assert page.inner_text(".quiz-feedback") == "Choose an answer first."
    for choice, opening in [("a", "✗ Not this one. so a"), ("c", "✓ Right.")]:
        page.get_by_label(choice, exact=True).check()
        page.click("text=Check")
        assert page.inner_text(".quiz-feedback").startswith(opening)
    assert "0 of 1 right at the first try" in page.inner_text(".quiz-score")


@pytest.mark.parametrize("given", [None, [], [{}], [{"choices": []}]])
def test_a_quiz_without_questions_breaks_nothing(shown, given):
    assert shown({"questions": given}, "quiz").wrong == []


def test_examples_set_later_are_drawn(shown):
    page = shown({"examples": [SHORT]})
    page.evaluate(
        """async ([text, later]) => {
          const type = "text/javascript";
          const url = URL.createObjectURL(new Blob([text], { type }));
          const { render } = (await import(url)).default;
          const heard = {};
          const model = {
            examples: [], get: (key) => model[key],
            on: (event, f) => { heard[event] = f; },
            off: (event) => { delete heard[event]; },
          };
          document.body.replaceChildren();
          const leave = render({ model, el: document.body });
          model.examples = later;
          heard["change:examples"]();
          window.leave = () => { leave(); return Object.keys(heard).length; };
        }""",
        [read_modules()["alignment_player"], [OTHER]],
    )
    assert page.locator(".ap").count() == 1
    assert status(page).startswith("output 1 of 3, “K”")
    assert page.evaluate("window.leave()") == 0
    assert page.locator(".ap").count() == 0
