"""The position explorer: its Python and JavaScript against the library."""

import math
import random

import pytest
import torch

from attnbook.positions.absolute import frequencies, sinusoidal_at
from attnbook.positions.rotary import rotate
from attnbook.widgets.position_explorer import LAST, PositionExplorer
from javascript import Module


def states(count=30):
    rng = random.Random(0)

    def vector():
        angle, size = rng.uniform(0, 2 * math.pi), rng.uniform(0, 3)
        return [size * math.cos(angle), size * math.sin(angle)]

    for i in range(count):
        width = 2 * rng.randrange(1, 17)
        yield {
            "method": ("rotary", "sinusoidal")[i % 2],
            "query": vector(),
            "key": vector(),
            "positions": [rng.randrange(64), rng.randrange(64)],
            "pair": rng.randrange(width // 2),
            "width": width,
            "base": 10 ** rng.uniform(0.5, 6),
        }


def vectors(state, name, at):
    """Return the library's vectors at positions (N,): (N, D)."""
    whole = torch.tensor(state[name], dtype=torch.float64)
    whole = whole.repeat(len(at), state["width"] // 2)
    at = torch.tensor(at)
    if state["method"] == "rotary":
        return rotate(whole[None, None], at, state["base"])[0, 0]
    return whole + sinusoidal_at(at.double(), state["width"], state["base"])


def scores(state):
    """Return the library's scores of all positions, over √D: (64, 64)."""
    everywhere = list(range(LAST + 1))
    query = vectors(state, "query", everywhere)
    key = vectors(state, "key", everywhere)
    return query @ key.T / state["width"] ** 0.5


near = {"atol": 1e-6, "rtol": 1e-6}


@pytest.fixture(scope="module")
def script():
    return Module("position_explorer")


def test_the_page_computes_what_the_library_does(script):
    for state in states():
        wanted, (m, n) = scores(state), state["positions"]
        found = torch.tensor(script.call("computeScore", state)).double()
        torch.testing.assert_close(found, wanted[m, n], **near)
        ours = torch.tensor(PositionExplorer(**state).score(m, n)).double()
        torch.testing.assert_close(ours, wanted[m, n], **near)
        for name, at in ("query", m), ("key", n):
            whole = script.call("encode", state, state[name], at)
            found = torch.tensor(whole, dtype=torch.float64)
            torch.testing.assert_close(found, vectors(state, name, [at])[0], **near)
        steps = script.call("computeFrequencies", state["width"], state["base"])
        found = torch.tensor(steps, dtype=torch.float64)
        torch.testing.assert_close(
            found,
            frequencies(state["width"], state["base"], torch.float64),
            atol=1e-12,
            rtol=1e-12,
        )


def test_the_band_holds_the_scores_of_every_distance(script):
    for state in states(6):
        wanted, found = scores(state), script.call("computeBand", state)
        assert [entry["distance"] for entry in found] == [*range(-63, 64)]
        for entry in found:
            same = wanted.diagonal(entry["distance"])
            for side, value in ("low", same.min()), ("high", same.max()):
                assert entry[side] == pytest.approx(float(value), abs=1e-6)


def test_a_tip_that_is_dragged_stays_where_it_was_put(script):
    for state in states():
        step = state["base"] ** (-2 * state["pair"] / state["width"])
        at, seen = state["positions"][0], state["query"]
        pair = script.call("decodePair", state["method"], seen, at, step)
        back = script.call("encodePair", state["method"], pair, at, step)
        assert back == pytest.approx(seen, abs=1e-9)
