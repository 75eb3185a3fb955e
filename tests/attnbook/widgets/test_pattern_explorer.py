"""The pattern explorer: its Python and JavaScript against the library."""

import random

import pytest
import torch

from attnbook import masks
from attnbook.data.smollm2_maps import load_maps
from attnbook.masks.layouts import bigbird_layout, random_layout
from attnbook.masks.receptive_field import receptive_field
from attnbook.widgets.pattern_explorer import (
    BLOCKS,
    PRESETS,
    RANGES,
    Pattern,
    PatternExplorer,
)
from javascript import Module


def make_example(T, heads=2, seed=0):
    """Return a map of random weights; some rows have a single key."""
    rng = random.Random(seed)
    rows = [
        [[rng.choice((0, 1, 7, 300)) for _ in range(t)] for t in range(T)]
        for _ in range(heads)
    ]
    return {
        "title": "random numbers",
        "tokens": [f" w{t}" if t % 7 else "\n" for t in range(T)],
        "heads": [
            {
                "title": f"head {h}",
                "thousandths": [[*row, rng.randint(1, 500)] for row in head],
            }
            for h, head in enumerate(rows)
        ],
    }


def states(count=60, seed=0):
    """Yield examples with patterns at random, with every length and block."""
    rng = random.Random(seed)
    lengths = 1, 2, 7, 12, 16, 24, 32, 48, 64
    for n in range(count):
        T = lengths[n % len(lengths)]
        fitting = [size for size in BLOCKS if T % size == 0]
        given = {name: rng.randint(*RANGES[name]) for name in RANGES}
        given["window"] = rng.randint(1, T)
        if n % 3:  # else nearly every pattern reaches everything
            given.update(global_tokens=0, sinks=rng.randint(0, 1))
        given["block"] = fitting[n // len(lengths) % len(fitting)]
        given["random_blocks"] = rng.randint(1, 4) if n % 2 else 0
        given["position"] = rng.randrange(T)
        given["head"] = rng.randrange(2)
        yield make_example(T, seed=n), given


def make_mask(T, window, step, sinks, global_tokens, block, random_blocks):
    """Return the mask by hand, query by query and key by key."""
    chosen = {(2 * i + 1) * T // (2 * global_tokens) for i in range(global_tokens)}
    fine = torch.zeros(T, T, dtype=torch.bool)
    for q in range(T):
        for k in range(q + 1):
            near = k in range(q, q - window * step, -step)
            fine[q, k] = near or k < sinks or bool({q, k} & chosen)
    if block == 1:
        return fine, int(fine.sum())
    N = T // block
    layout = torch.tensor(
        [
            [
                bool(fine[n * block :, m * block :][:block, :block].any())
                for m in range(N)
            ]
            for n in range(N)
        ]
    )
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    layout = layout | random_layout(layout | future, random_blocks, seed=0)
    whole = layout.repeat_interleave(block, 0).repeat_interleave(block, 1)
    return whole.tril(), int(whole.sum())


PARTS = (
    "window",
    "step",
    "sinks",
    "global_tokens",
    "block",
    "random_blocks",
)


def test_its_mask_and_cost_are_those_of_the_pattern():
    for example, given in states():
        widget = PatternExplorer(example, **given)
        T = len(example["tokens"])
        mask, scores = make_mask(T, *(given[name] for name in PARTS))
        assert widget.mask().equal(mask), given
        assert widget.count_scores() == scores, given


def test_a_pattern_is_the_librarys_mask():
    def alone(**parts):
        return Pattern(**parts).mask(16)

    assert alone(window=16).equal(masks.causal(16, 16))
    assert alone(window=5).equal(masks.window(16, 16, 5))
    dilated = masks.dilated(16, 16, 3, 4)
    assert alone(window=3, step=4).equal(dilated)
    both = masks.window(16, 16, 3) | masks.sinks(16, 16, 2)
    assert alone(window=3, sinks=2).equal(both)
    spread = masks.global_tokens(16, 16, [4, 12]) | masks.window(16, 16, 1)
    found = alone(window=1, global_tokens=2)
    assert found.equal(spread & masks.causal(16, 16))
    # BigBird's layout without later blocks: one block back, and its own.
    layout = Pattern(window=5, block=4, sinks=1).layout(16)
    bigbird = bigbird_layout(4, 1, 1, 0, seed=0) & masks.causal(4, 4)
    assert layout.equal(bigbird)


def test_its_receptive_field_and_kept_weights_are_the_librarys():
    for example, given in states(30, seed=1):
        widget = PatternExplorer(example, **given)
        T = len(example["tokens"])
        mask, _ = make_mask(T, *(given[name] for name in PARTS))
        reached = receptive_field(mask, given["layers"])
        assert widget.reached().equal(reached[given["position"]])
        kept, best = widget.kept().tolist(), widget.best().tolist()
        rows = example["heads"][given["head"]]["thousandths"]
        for t, row in enumerate(rows):
            seen = [x for k, x in enumerate(row) if mask[t, k]]
            assert kept[t] == pytest.approx(sum(seen) / sum(row))
            most = sum(sorted(row, reverse=True)[: len(seen)])
            assert best[t] == pytest.approx(most / sum(row))
            assert best[t] > kept[t] - 1e-9


def test_the_fallback_is_a_table_of_the_patterns():
    widget = PatternExplorer(make_example(16), window=4, sinks=0, layers=2)
    text = widget._repr_mimebundle_()[0]["text/html"]
    fallback = text.split("</script>")[1]
    assert "recorded map of 16 tokens (random numbers), head 0" in fallback
    assert "causal attention has 136 scores" in fallback
    kept = f"{widget.kept().mean():.0%}"
    best = f"{widget.best().mean():.0%}"
    row = (
        f"<th>Shown: a window of 4</th><td>58</td><td>{kept}</td>"
        f"<td>{best}</td><td>7</td>"
    )
    assert row in fallback
    whole = "<th>Causal attention: a window of 16</th><td>136</td><td>100%</td>"
    assert whole in fallback
    assert fallback.count("<tr>") == 2 + len(PRESETS)
    assert "through 2 layers" in fallback


def test_presets_fit_any_length():
    for T in (1, 6, 8, 64):
        widget = PatternExplorer(make_example(T), window=1)
        assert [x["name"] for x in widget.presets] == [*PRESETS]
        for preset in widget.presets:
            assert T % preset["block"] == 0
            assert 1 <= preset["window"] <= T
        widget.fallback()


def test_the_recorded_maps_can_be_explored():
    for example in load_maps():
        widget = PatternExplorer(example)
        assert len(example["tokens"]) == 64
        titles = [head["title"] for head in example["heads"]]
        assert len({*titles}) == len(titles) >= 5
        assert titles[-1] == "mean of all heads"
        for head in range(len(titles)):
            widget.head = head
            sums = [sum(x) for x in example["heads"][head]["thousandths"]]
            assert 950 <= min(sums) <= max(sums) <= 1050
            torch.testing.assert_close(
                widget.kept(masks.causal(64, 64)), torch.ones(64).double()
            )


def change(example, **parts):
    return {**example, **parts}


GOOD = make_example(8)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("example", "given", "message"),
    [
        ({}, {}, "an example lacks 'tokens'"),
        (change(GOOD, tokens=[]), {}, "there are 0 tokens; .* shows 1 to 64"),
        (change(GOOD, tokens=["a"] * 65), {}, "there are 65 tokens"),
        (change(GOOD, tokens="abcdefgh"), {}, "must be a list of strings"),
        (change(GOOD, heads=[]), {}, "there are 0 heads"),
        (
            change(GOOD, tokens=["a", "b"]),
            {},
            r"head 0 has rows of \[1, 2, 3, 4.* with 2 tokens, row t has",
        ),
        (
            {
                "title": "t",
                "tokens": ["a", "b"],
                "heads": [{"title": "h", "thousandths": [[1], [0, 0]]}],
            },
            {},
            r"row 1 of h must hold .* not all of them 0; it is \[0, 0\]",
        ),
        (
            {
                "title": "t",
                "tokens": ["a"],
                "heads": [{"title": "h", "thousandths": [[1.5]]}],
            },
            {},
            r"row 0 of h must hold whole numbers .* it is \[1.5\]",
        ),
        (GOOD, {"window": 9}, "window must be a whole number from 1 to 8, not"),
        (GOOD, {"step": 0}, "step must be a whole number from 1 to 8, not 0"),
        (GOOD, {"sinks": 9}, "sinks must be a whole number from 0 to 8, not 9"),
        (GOOD, {"block": 3}, "block is 3; with 8 tokens .* one of 1, 4, 8"),
        (GOOD, {"block": 16}, "block is 16; with 8 tokens"),
        (GOOD, {"random_blocks": 5}, "random_blocks must be .* not 5"),
        (GOOD, {"layers": 0}, "layers must be a whole number from 1 to 8"),
        (GOOD, {"position": 8}, "position is 8, but there are 8"),
        (GOOD, {"head": 2}, "head is 2, but there are 2"),
    ],
)
def test_invalid_values_are_refused(example, given, message):
    with pytest.raises(ValueError, match=message):
        PatternExplorer(example, **{"window": 2, **given})


@pytest.fixture(scope="module")
def script():
    return Module("pattern_explorer")


@pytest.mark.javascript
def test_the_pages_masks_costs_and_reach_are_the_librarys(script):
    seen = set()
    for example, given in states():
        widget = PatternExplorer(example, **given)
        state, T = widget.state(), len(example["tokens"])
        assert script.call("cleanState", state) == state
        pattern = {name: given[name] for name in PARTS}
        orders = state["orders"]
        rows = script.call("buildMask", pattern, T, orders)
        assert rows == widget.mask().tolist(), given
        layout = widget.pattern().layout(T)
        assert script.call("buildLayout", pattern, T, orders) == layout.tolist()
        scores = script.call("countScores", pattern, T, orders)
        assert scores == widget.count_scores()
        far = script.call("findDistances", rows, given["position"])
        reached = [0 <= d <= given["layers"] for d in far]
        assert reached == widget.reached().tolist(), given
        seen.add((given["block"], given["random_blocks"] > 0))
        seen.add(min(far) < 0)
    assert len(seen) == 2 * len(BLOCKS) + 2


@pytest.mark.javascript
def test_the_distance_is_the_smallest_number_of_layers(script):
    for example, given in states(12, seed=2):
        mask = PatternExplorer(example, **given).mask()
        position = given["position"]
        far = script.call("findDistances", mask.tolist(), position)
        for layers in range(1, 9):
            reached = receptive_field(mask, layers)[position].tolist()
            assert [0 <= d <= layers for d in far] == reached


@pytest.mark.javascript
def test_the_pages_kept_weights_are_the_librarys(script):
    for example, given in states(30, seed=3):
        widget = PatternExplorer(example, **given)
        rows = example["heads"][given["head"]]["thousandths"]
        mask = widget.mask().tolist()
        for name, ours in ("Kept", widget.kept()), ("Best", widget.best()):
            found = script.call(f"compute{name}", mask, rows)
            whole = torch.tensor(found, dtype=torch.float64)
            torch.testing.assert_close(whole, ours)
        measured = script.call("measurePattern", widget.state(), given)
        assert measured["kept"] == pytest.approx(float(widget.kept().mean()))
        assert measured["best"] == pytest.approx(float(widget.best().mean()))
        assert measured["reached"] == int(widget.reached().sum())


@pytest.mark.javascript
def test_the_presets_are_measured_as_the_fallback_measures_them(script):
    widget = PatternExplorer(make_example(64), layers=3)
    state = widget.state()
    for preset in state["presets"]:
        pattern = PRESETS[preset["name"]].fit(64)
        mask = pattern.mask(64)
        found = script.call("measurePattern", state, preset)
        assert found["scores"] == pattern.count_scores(64)
        assert found["used"] == int(mask.sum())
        assert found["kept"] == pytest.approx(float(widget.kept(mask).mean()))


@pytest.mark.javascript
def test_the_code_makes_this_mask_and_receptive_field(script):
    for example, given in states(40, seed=4):
        widget = PatternExplorer(example, **given)
        space = {}
        exec(script.call("formatCode", widget.state()), space)
        assert space["mask"].equal(widget.mask()), given
        assert space["reached"].equal(widget.reached()), given


def describe(script, name, T=64, **given):
    state = PatternExplorer(make_example(T), **given).state()
    return script.call(name, state)


@pytest.mark.javascript
def test_cost_and_reach_are_described_in_words(script):
    message = describe(script, "describeCost", window=4, sinks=0)
    assert message.startswith(
        "The pattern computes 250 scores, 12 % of the 2,080 of causal "
        "attention. On average over the queries, it keeps "
    )
    blocks = describe(script, "describeCost", window=1, sinks=0, block=8)
    assert blocks.startswith(
        "The pattern computes 512 scores in blocks of 8 by 8, 25 % of the "
        "2,080 of causal attention, and uses 288 of them."
    )
    reach = describe(script, "describeReach", window=4, sinks=0, layers=2)
    assert reach == (
        "Position 63 attends to 4 keys. Inputs that can reach it through 2 "
        "layers: 7 of 64. 21 layers reach all of them."
    )
    gaps = {"window": 4, "step": 2, "sinks": 1, "layers": 1}
    assert describe(script, "describeReach", **gaps) == (
        "Position 63 attends to 5 keys. Inputs that can reach it through 1 "
        "layer: 5 of 64. More layers reach at most 33: no path leads to the "
        "others."
    )
    whole = describe(script, "describeReach", window=64, position=0)
    assert whole == (
        "Position 0 attends to 1 key. Inputs that can reach it through 2 "
        "layers: 1 of 1. 1 layer reaches all of them."
    )


@pytest.mark.javascript
def test_what_a_query_loses_is_described_in_words(script):
    example = {
        "title": "three tokens",
        "tokens": ["<s>", " the", "\n"],
        "heads": [{"title": "h", "thousandths": [[1000], [600, 400], [500, 300, 200]]}],
    }
    state = PatternExplorer(example, window=2, sinks=0).state()
    assert script.call("describeQuery", state) == (
        "Of the weight of this query, the pattern keeps 50 %; the largest "
        "weight that it loses is 0.500, on “<s>” at position 0."
    )
    state["sinks"] = 1
    assert script.call("describeQuery", state) == (
        "Of the weight of this query, the pattern keeps 100 %."
    )
    assert script.call("showToken", "a\nb") == "a↵b"


@pytest.mark.javascript
def test_darker_cells_have_more_weight_and_none_is_lost(script):
    rows = [[1000], [0, 1000], [1, 300, 699]]
    mask = [[True, False, False], [True, True, False], [False, True, True]]
    found = script.call("sortCells", mask, rows)
    assert found["kept"][8] == [[0, 0], [1, 1]]
    assert found["lost"][1] == [[2, 0]]
    count = sum(len(x) for kind in found.values() for x in kind)
    assert count == sum(x > 0 for row in rows for x in row)
    assert script.call("drawCells", [[2, 1], [0, 0]]) == ("M1 2h1v1h-1zM0 0h1v1h-1z")


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    empty = script.call("cleanState", {})
    assert (empty["tokens"], empty["heads"], empty["window"]) == ([], [], 1)
    odd = {
        "title": 3,
        "tokens": ["a", None, 3, "d"],
        "heads": [None, {"thousandths": [["NaN"], [1e9, -4]]}],
        "orders": [None, {"size": 4, "ranks": "x"}],
        "presets": [None, {"name": 3, "window": 1e9}],
        "window": "x",
        "step": -3,
        "block": 3,
        "layers": "Infinity",
        "position": 1e308,
        "head": "NaN",
    }
    made = script.call("cleanState", odd)
    assert made["tokens"] == ["a", "null", "3", "d"]
    assert made["heads"][1]["thousandths"][:2] == [[0], [1000, 0]]
    assert made["orders"] == [{"size": 4, "ranks": [[0]]}]
    assert [p["window"] for p in made["presets"]] == [1, 4]
    assert (made["window"], made["step"], made["block"]) == (1, 1, 1)
    assert (made["layers"], made["position"], made["head"]) == (1, 3, 0)
    assert script.call("measurePattern", made, made)["kept"] == 0
