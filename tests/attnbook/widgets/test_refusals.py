"""A widget refuses what it cannot show, in one sentence that names both values."""

import math

import pytest

from attnbook.widgets.alignment_player import AlignmentPlayer
from attnbook.widgets.attention_map import AttentionMap
from attnbook.widgets.cache_stepper import CacheStepper
from attnbook.widgets.cost_calculator import CostCalculator
from attnbook.widgets.head_explorer import HeadExplorer
from attnbook.widgets.mask_builder import MaskBuilder
from attnbook.widgets.picture_and_sound import PictureAndSound
from attnbook.widgets.position_explorer import PositionExplorer
from attnbook.widgets.soft_lookup import COLORS, SoftLookup
from attnbook.widgets.tile_stepper import TileStepper
from attnbook.widgets.translation_map import TranslationMap
from widget_examples import (
    EXAMPLES,
    make_head_explorer,
    make_pattern_explorer,
)

pytestmark = pytest.mark.refusal


def change_example(stem, **changes):
    """Return a widget's first example with some parts replaced."""
    return [EXAMPLES[stem].state()["examples"][0] | changes]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": []}, "source has 0 words"),
        ({"source": "i am"}, "list of strings, not 'i am'"),
        ({"source": ["i"]}, "2 weights for 1 source"),
        ({"with": {"output": ["je"], "weights": []}}, "0 rows .* 1 output"),
        (
            {"with": {"output": [], "weights": [[1, 0]] * 2}},
            "2 rows of weights for 0 output",
        ),
        (
            {"with": {"output": ["je"], "weights": [[0.5, math.nan]]}},
            "row 0 gives source word 1, 'am', the weight nan",
        ),
        ({"with": 3}, "`with` lacks 'output'; it has 3"),
    ],
)
def test_an_alignment_that_does_not_fit_its_words(changes, message):
    with pytest.raises(ValueError, match=message):
        AlignmentPlayer(change_example("alignment_player", **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": "the cat"}, "must be a list of strings"),
        ({"key": ["a", "b"]}, "row 0 has 3 weights for 2 keys"),
        ({"weights": []}, r"0 layers with \[\] heads"),
        ({"weights": [[[[2, 0, 0]] * 3]]}, "key 0, 'the', the weight 2"),
    ],
)
def test_a_map_that_does_not_fit_its_words(changes, message):
    with pytest.raises(ValueError, match=message):
        AttentionMap(change_example("attention_map", **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": ["a", "b", "c"]}, "2 rows of weights for 3 queries"),
        ({"encoder": []}, r"0 layers with \[\] heads"),
        (
            {"decoder": [[[[0.5, 0.5], [0.5, 0.5]]]]},
            "step 0 gives 0.500 to words that it has not read",
        ),
    ],
)
def test_maps_of_a_translation_that_do_not_fit_its_words(changes, message):
    with pytest.raises(ValueError, match=message):
        TranslationMap(change_example("translation_map", **changes))


FOUR = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (AlignmentPlayer, {"examples": []}, "0 examples"),
        (AttentionMap, {"examples": []}, "0 examples given"),
        (
            AttentionMap,
            {"examples": change_example("attention_map"), "layer": 2},
            "layer is 2.*there are 1",
        ),
        (CacheStepper, {"kind": "MQA"}, "'MQA' is none of MHA, GQA, MLA"),
        (CacheStepper, {"page": 3}, "a page has 2, 4 or 8 positions, not 3"),
        (CacheStepper, {"window": 1}, "window must be .* from 2 to 12, not 1"),
        (CostCalculator, {"model": "GPT-9"}, "'GPT-9' is none of"),
        (CostCalculator, {"n": 0}, "n is 0, outside 1 to 2097152"),
        (
            CostCalculator,
            {"heads": 6, "groups": 4},
            "6 heads do not divide into 4 groups",
        ),
        (HeadExplorer, {"maps": {}}, "maps lacks 'layers'"),
        (make_head_explorer, {"tokens": FOUR, "layer": 3}, "layer is 3, .* are 3"),
        (make_head_explorer, {"tokens": FOUR, "score": "x"}, "score is 'x', not one"),
        (make_head_explorer, {"tokens": ["a"]}, "has 1 tokens; a map shows 2 to 24"),
        (MaskBuilder, {"parts": []}, "0 parts given; there may be 1 to 4"),
        (
            MaskBuilder,
            {"parts": [{"kind": "casual"}]},
            "kind must be one .* not 'casual'",
        ),
        (MaskBuilder, {"T": 11}, "T must be a whole number from 1 to 10, not 11"),
        (MaskBuilder, {"lengths": [3]}, "there are 2 sequences, not 1 lengths"),
        (
            make_pattern_explorer,
            {"tokens": ["a"] * 65},
            "there are 65 tokens",
        ),
        (
            make_pattern_explorer,
            {"tokens": FOUR, "window": 1, "block": 3},
            "block is 3; with 4 tokens",
        ),
        (
            make_pattern_explorer,
            {"tokens": FOUR, "window": 9},
            "window must be a whole number from 1 to 4, not 9",
        ),
        (PictureAndSound, {"items": [{}]}, "an item lacks 'kind'"),
        (PositionExplorer, {"method": "alibi"}, "rotary, sinusoidal, not 'alibi'"),
        (PositionExplorer, {"width": 7}, "width is 7, and pairs need an even one"),
        (PositionExplorer, {"key": [3, 3]}, "the key has the length 4.24"),
        (SoftLookup, {"entries": []}, "0 keys given; there may be 1 to 8"),
        (
            SoftLookup,
            {"entries": [{**COLORS[0], "place": [0]}]},
            "'red' must be 2 numbers",
        ),
        (SoftLookup, {"temperature": 0}, "temperature is 0.0, outside 0.01 to 100"),
        (TileStepper, {"T": 0}, "T must be a whole number from 1 to 10, not 0"),
    ],
)
def test_a_value_that_cannot_be_shown(make, given, message):
    with pytest.raises(ValueError, match=message):
        make(**given)


def test_examples_set_later_are_checked_too():
    player = AlignmentPlayer(change_example("alignment_player"))
    with pytest.raises(ValueError, match="source has 0 words"):
        player.examples = change_example("alignment_player", source=[])
