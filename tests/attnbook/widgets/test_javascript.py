"""What the widgets compute in the page equals what the library computes."""

import random
import re
from collections import defaultdict
from pathlib import Path

import pytest
import quickjs

from attnbook.training.metrics import edit_distance
from attnbook.widgets.alignment_player import list_largest_weights
from attnbook.widgets.module import read_modules
from javascript import WIDGETS, Module
from workshop.book.mounts import make_classic_script

pytestmark = pytest.mark.javascript


TESTS = Path(__file__).parents[2]
NUMERIC = [
    path
    for path in sorted(WIDGETS.glob("*.js"))
    if path.stem not in ("quiz", "prediction")
    and "export default" in path.read_text("utf8")
]


@pytest.fixture(scope="module")
def player():
    return Module("alignment_player")


@pytest.fixture(scope="module")
def quiz():
    return Module("quiz")


def test_a_predicted_number_is_compared_with_the_measured_one():
    prediction = Module("prediction")
    message = prediction.call("compareNumbers", 51, "62.5", "%")
    assert message == "You predicted 51 %; the result is 62.5 %."
    message = prediction.call("compareNumbers", 3, "4", "")
    assert message == "You predicted 3; the result is 4."


def draws(count=200, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        yield tuple(
            [rng.choice("abcdé") for _ in range(rng.randrange(9))] for _ in range(2)
        )


def test_every_widget_is_a_module_with_render():
    for stem, text in read_modules().items():
        assert Module(stem).names, stem
        assert "innerHTML" not in text
        # As the pages run it: what is exported by default is returned.
        page = quickjs.Context()
        page.eval(make_classic_script(stem, text))
        assert page.eval(f"typeof bookModules.{stem}().render") == "function"


def test_no_widget_has_a_function_that_another_has():
    places = defaultdict(set)
    for path in WIDGETS.glob("*.js"):
        text = path.read_text("utf8")
        whole = r"^(?:export )?function .*?^}"
        for body in re.findall(whole, text, re.MULTILINE | re.DOTALL):
            places[body].add(path.stem)
    assert [x for x in places.values() if len(x) > 1] == []


@pytest.mark.parametrize("path", NUMERIC, ids=lambda p: p.stem)
def test_every_widgets_numbers_are_held_to_the_library(path):
    """Somewhere a test computes both and compares; questions have none."""
    called = f'Module("{path.stem}")'
    texts = [x.read_text("utf8") for x in TESTS.rglob("test_*.py")]
    held = [x for x in texts if called in x and "pytest.mark.javascript" in x]
    assert any(re.search(r"from attnbook(?!\.widgets)", x) for x in held)


@pytest.mark.parametrize(
    "text",
    [
        "export const a = 1;",
        'import a from "a";\nexport default {};',
        "export { a };\nexport default {};",
        "export default {};\nexport default {};",
    ],
)
def test_a_module_that_no_page_could_run_is_refused(text):
    with pytest.raises(ValueError, match="odd must import nothing"):
        make_classic_script("odd", text)


def test_the_edit_distance_is_the_librarys(player):
    for ours, theirs in draws():
        assert player.call("editDistance", ours, theirs) == edit_distance(ours, theirs)


def test_unchanged_words_agree_with_the_edit_distance(player):
    for ours, theirs in draws(seed=1):
        marks = player.call("markUnchanged", ours, theirs)
        assert len(marks) == len(ours)
        left = [w for w, mark in zip(ours, marks, strict=True) if mark]
        rest = iter(theirs)
        assert all(word in rest for word in left)  # in the reference's order
        # What is not kept is deleted or replaced; a cheapest edit of the rest
        # costs as much as the whole.
        changed = [w if mark else f"?{w}" for w, mark in zip(ours, marks, strict=True)]
        assert edit_distance(changed, theirs) == edit_distance(ours, theirs)


def test_the_largest_weight_is_found_and_what_is_no_number_is_not(player):
    rng = random.Random(2)
    for _ in range(50):
        row = [rng.random() for _ in range(rng.randrange(1, 41))]
        assert player.call("findLargest", row) == row.index(max(row))
    assert player.call("findLargest", []) == -1
    assert player.call("findLargest", ["NaN", None]) == -1
    assert player.call("findLargest", [None, 0.1, "x"]) == 1


def test_the_page_and_the_fallback_name_the_same_word(player):
    rng = random.Random(3)
    for _ in range(50):
        source = [rng.choice("abcdé") for _ in range(rng.randrange(1, 13))]
        rows = [[rng.random() for _ in source] for _ in range(7)]
        made = {
            "source": source,
            "with": {"output": list("abcdefg"), "weights": rows},
        }
        drawn = player.call("cleanExample", made)
        for t, (word, at, weight) in enumerate(list_largest_weights(made)):
            best = player.call("findLargest", drawn["weights"][t])
            assert (drawn["output"][t], source[best]) == (word, at)
            assert abs(drawn["weights"][t][best] - weight) < 1e-6


def test_invalid_examples_are_replaced_by_valid_ones(player):
    empty = player.call("cleanExample", {})
    assert empty == {
        "title": "",
        "source": [],
        "reference": [],
        "output": [],
        "weights": [],
        "without": [],
    }
    ragged = player.call(
        "cleanExample",
        {
            "source": ["a", 1, "</script>"],
            "with": {"weights": [[0.5], ["NaN", 2, "Infinity"], None]},
        },
    )
    assert ragged["source"] == ["a", "1", "</script>"]
    assert ragged["weights"] == [[0.5, 0, 0], [0, 1, 0], [0, 0, 0]]


EXAMPLE = {
    "title": "t",
    "source": ["i", "am"],
    "reference": ["je", "suis"],
    "output": ["je", "suis"],
    "weights": [[0.9, 0.1], [0.17, 0.83], [0.5, 0.5]],
    "without": ["je"],
}


def test_a_step_is_described_in_words(player):
    assert player.call("describeStep", EXAMPLE, 1, True) == (
        "output 2 of 2, “suis”, attends most to “am” (0.83)"
    )
    assert player.call("describeStep", EXAMPLE, 2, True).startswith("the end, attends")
    assert "no weights" in player.call("describeStep", EXAMPLE, 0, False)
    bare = {**EXAMPLE, "weights": []}
    assert "no weights here" in player.call("describeStep", bare, 0, True)


def test_a_word_from_right_to_left_stays_in_its_quotation_marks(player):
    arabic = {**EXAMPLE, "source": ["i", "بيت"]}
    message = player.call("describeStep", arabic, 1, True)
    assert message.endswith("“\u2068بيت\u2069” (0.83)")
    assert "\u2068" not in player.call("describeStep", EXAMPLE, 1, True)


def test_a_row_of_zeros_has_no_largest_weight(player):
    dark = {**EXAMPLE, "weights": [[0, 0]]}
    assert player.call("describeStep", dark, 0, True).endswith("no weights here")


def test_maps_of_1_to_512_words_fit(player):
    for rows, columns in [(1, 1), (12, 14), (50, 41), (512, 512), (1, 512)]:
        cell = player.call("chooseCellSize", rows, columns)
        assert cell["gap"] < cell["width"] <= 36
        assert 2 <= cell["height"] <= 36
        assert columns * cell["width"] <= max(832, 2 * columns)
        assert rows * cell["height"] <= max(832, 2 * rows)


def test_steps_count_the_end_if_it_has_weights(player):
    assert player.call("countSteps", EXAMPLE, True) == 3
    assert player.call("countSteps", EXAMPLE, False) == 1
    assert player.call("countSteps", {**EXAMPLE, "without": []}, False) == 1


def test_first_tries_are_counted(quiz):
    assert quiz.call("countFirstTries", [[True], [False, True], []]) == 1
    assert quiz.call("formatVerdict", {"right": True}).startswith("✓")
    assert quiz.call("formatVerdict", {"right": False}).startswith("✗")
