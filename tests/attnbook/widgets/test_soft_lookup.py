"""The soft lookup: its Python, its JavaScript, and the page in a browser."""

import random

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend, attention_weights
from attnbook.widgets.soft_lookup import SoftLookup, draw_hidden_coordinates
from javascript import Module


def tensors(state):
    width = state["width"]
    key = [
        [*k["place"], *draw_hidden_coordinates(i + 1, width - 2)]
        for i, k in enumerate(state["entries"])
    ]
    query = [[*state["query"], *draw_hidden_coordinates(0, width - 2)]]
    value = [k["value"] for k in state["entries"]]
    made = (torch.tensor(x, dtype=torch.float64) for x in (query, key, value))
    root = width**0.5 if state["divided"] else 1.0
    return *made, 1 / (root * state["temperature"])


def states(count=30):
    rng = random.Random(0)
    for _ in range(count):
        yield {
            "entries": [
                {
                    "label": f"k{i}",
                    "place": [rng.uniform(-3, 3), rng.uniform(-3, 3)],
                    "value": [rng.random() for _ in range(3)],
                }
                for i in range(rng.randrange(1, 9))
            ],
            "query": [rng.uniform(-3, 3), rng.uniform(-3, 3)],
            "temperature": 10 ** rng.uniform(-2, 2),
            "width": 2 ** rng.randrange(1, 11),
            "divided": rng.random() < 0.5,
        }


@pytest.fixture(scope="module")
def script():
    return Module("soft_lookup")


def test_the_page_computes_what_the_library_does(script):
    for state in states():
        query, key, value, scale = tensors(state)
        shares = script.call("computeWeights", state)
        wanted = attention_weights(query, key, scale=scale)[0]
        found = torch.tensor(shares).double()
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
        scores = script.call("computeScores", state)
        assert scores == pytest.approx((query @ key.T)[0].mul(scale).tolist())
        assert scores == pytest.approx(SoftLookup(**state).scores())
        assert shares == pytest.approx(SoftLookup(**state).weights())
        spread = torch.special.entr(wanted).sum().item()
        assert script.call("entropy", shares) == pytest.approx(spread, abs=1e-6)
        mixed = script.call("mix", shares, value.tolist())
        output = attend(query, key, value, scale=scale)[0]
        found = torch.tensor(mixed).double()
        torch.testing.assert_close(found, output, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("row", [0, 1, 8])
def test_python_and_javascript_draw_the_same_hidden_coordinates(script, row):
    assert script.call("drawHiddenCoordinates", row, 50) == pytest.approx(
        draw_hidden_coordinates(row, 50)
    )


def test_large_scores_do_not_overflow(script):
    assert script.call("softmax", [5000, 5000, -5000]) == [0.5, 0.5, 0]
