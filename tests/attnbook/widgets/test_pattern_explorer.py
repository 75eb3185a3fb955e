"""The pattern explorer: its Python and JavaScript against the library."""

import random
from dataclasses import asdict

import pytest
import torch

from attnbook import masks
from attnbook.masks.layouts import bigbird_layout, receptive_field
from attnbook.widgets.pattern_explorer import BLOCKS, Pattern, PatternExplorer
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
        few = n % 3  # else nearly every pattern reaches everything
        given = {
            "window": rng.randint(1, T),
            "step": rng.randint(1, 8),
            "sinks": rng.randint(0, 1 if few else 8),
            "global_tokens": 0 if few else rng.randint(0, 8),
            "block": fitting[n // len(lengths) % len(fitting)],
            "random_blocks": rng.randint(1, 4) if n % 2 else 0,
            "layers": rng.randint(1, 8),
            "position": rng.randrange(T),
            "head": rng.randrange(2),
        }
        yield make_example(T, seed=n), given


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
        mask = widget.mask()
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


@pytest.fixture(scope="module")
def script():
    return Module("pattern_explorer")


def test_the_pages_masks_costs_and_reach_are_the_librarys(script):
    seen = set()
    for example, given in states():
        widget = PatternExplorer(example, **given)
        state, T = widget.state(), len(example["tokens"])
        assert script.call("cleanState", state) == state
        pattern = {name: given[name] for name in asdict(Pattern())}
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


def test_the_code_makes_this_mask_and_receptive_field(script):
    for example, given in states(40, seed=4):
        widget = PatternExplorer(example, **given)
        space = {}
        exec(script.call("formatCode", widget.state()), space)
        assert space["mask"].equal(widget.mask()), given
        assert space["reached"].equal(widget.reached()), given
