"""What holds of every widget: its mount, its fallback, what it refuses."""

import json
import math

import pytest
import traitlets

from attnbook.widgets.alignment_player import AlignmentPlayer
from attnbook.widgets.attention_map import AttentionMap
from attnbook.widgets.base import BookWidget
from attnbook.widgets.cost_calculator import CostCalculator
from attnbook.widgets.mask_builder import MaskBuilder
from attnbook.widgets.mount import encode_nonfinite, render_mount
from attnbook.widgets.position_explorer import PositionExplorer
from attnbook.widgets.soft_lookup import SoftLookup
from attnbook.widgets.tile_stepper import TileStepper
from attnbook.widgets.translation_map import TranslationMap
from javascript import WIDGETS
from widget_examples import EXAMPLES, HOSTILE, MARKUP, make_head_explorer


def read_state(text):
    script = text.split('<script type="application/json">')[1]
    return json.loads(script.split("</script>")[0])


def test_every_widget_has_an_example():
    scripts = {path.stem for path in WIDGETS.glob("*.js")}
    assert {*EXAMPLES} == scripts - {"shared", "quiz", "prediction"}


@pytest.mark.parametrize("stem", EXAMPLES)
def test_the_page_gets_a_mount_the_state_and_a_fallback(stem):
    widget = EXAMPLES[stem]
    data, _ = widget._repr_mimebundle_()
    text = data["text/html"]
    assert text.startswith(f'<div data-book-widget="{stem}">')
    assert read_state(text).keys() == widget.state().keys()
    assert widget.fallback() in text.split("</script>")[1]
    assert data["text/plain"] == f"{type(widget).__name__}()"


@pytest.mark.parametrize("stem", HOSTILE)
def test_labels_are_escaped_in_html(stem):
    data, _ = HOSTILE[stem]._repr_mimebundle_()
    text = data["text/html"]
    assert "<img" not in text
    assert text.count("</script>") == 1
    assert MARKUP in json.dumps(read_state(text), ensure_ascii=False)


WORDS = {"title": "", "source": ["a", "b"], "reference": ["x"], "output": ["x"]}
ALIGNED = {"with": {"output": ["x"], "weights": [[0.1, 0.9]]}, "without": WORDS}
MAPS = {
    "encoder": [[[[1, 0]] * 2] * 2],
    "decoder": [[[[1]]] * 2],
    "cross": [[[[1, 0]], [[0.2, 0.8]]]],
}
FALLBACKS = {
    "alignment_player": (
        AlignmentPlayer([WORDS | ALIGNED]),
        "<td>x</td><td>b</td><td>0.90</td>",
    ),
    "translation_map": (
        TranslationMap([WORDS | MAPS], head=1),
        "<td>x</td><td>b</td><td>0.80</td>",
    ),
    "cost_calculator": (
        CostCalculator("GPT-2 (small)", "T4", phase="train", n=4096, itemsize=4),
        "<th scope='row'>operations</th><td>156 GFLOP</td>",
    ),
    "mask_builder": (
        MaskBuilder([{"kind": "causal"}], T=3, S=2),
        "<th>query 0</th><td>·</td><td>·</td><td>empty row: zeros</td></tr>"
        "<tr><th>query 1</th><td>1.00</td><td>·</td></tr>",
    ),
    "position_explorer": (
        PositionExplorer(base=100, width=4, pair=1),
        "<td>2</td><td>62.8</td><td>-0.60</td>",
    ),
    "soft_lookup": (
        SoftLookup(),
        "<td>green</td><td>0.00, 1.00, 0.00</td><td>0.54</td><td>0.27</td>",
    ),
    "tile_stepper": (
        TileStepper(T=3, S=2, causal=True, step=1),
        "<th>query 0</th><td>nothing seen</td><td>0</td><td>zeros</td>",
    ),
}


@pytest.mark.parametrize("stem", FALLBACKS)
def test_the_fallback_shows_the_numbers(stem):
    widget, text = FALLBACKS[stem]
    assert text in widget.fallback()


def change_example(stem, **changes):
    """Return a widget's first example with some parts replaced."""
    return {"examples": [EXAMPLES[stem].state()["examples"][0] | changes]}


REFUSED = [
    (AlignmentPlayer, {"examples": []}, "must be of length 1 <= L"),
    (
        AlignmentPlayer,
        change_example("alignment_player", source=["i"]),
        r"shape \(\d, 2\), but the words need \(\d, 1\)",
    ),
    (
        AttentionMap,
        change_example("attention_map", weights=[[[[2, 0, 0]] * 3]]),
        "a weight is 2.0, not between 0 and 1",
    ),
    (
        AttentionMap,
        change_example("attention_map", weights=[[[[math.nan, 0, 0]] * 3]]),
        "a weight is nan",
    ),
    (AttentionMap, change_example("attention_map") | {"layer": 2}, "there are 1"),
    (
        TranslationMap,
        change_example("translation_map", source=["a", "b", "c"]),
        r"shape \(1, 1, 2, 2\), but the words need \(3, 3\)",
    ),
    (CostCalculator, {"model": "GPT-9"}, "'GPT-9' is none of"),
    (CostCalculator, {"n": 0}, "less than 1, but a value of 0"),
    (CostCalculator, {"heads": 6, "groups": 4}, "6 heads .* 4 groups"),
    (make_head_explorer, {"tokens": ["a", "b"], "score": "x"}, "'x'"),
    (MaskBuilder, {"parts": [{"kind": "casual"}]}, "has 'casual' and 'and'"),
]


@pytest.mark.refusal
@pytest.mark.parametrize(("make", "given", "message"), REFUSED)
def test_what_cannot_be_shown_is_refused_with_both_values(make, given, message):
    with pytest.raises((ValueError, traitlets.TraitError), match=message):
        make(**given)


def test_nonfinite_numbers_are_encoded_as_text():
    state = {"a": [math.nan, -math.inf, 1.5], "b": (math.inf,)}
    message = {"a": ["NaN", "-Infinity", 1.5], "b": ["Infinity"]}
    assert encode_nonfinite(state) == message
    assert '"NaN"' in render_mount("x", {"a": math.nan}, "")


def test_the_state_contains_only_a_widgets_own_traits():
    class Small(BookWidget):
        _esm = "export default {}"
        numbers = traitlets.List([1]).tag(sync=True)
        private = traitlets.Int(3)

    assert Small().state() == {"numbers": [1]}
    with pytest.raises(NotImplementedError, match="Small has no method fall"):
        Small()._repr_mimebundle_()
