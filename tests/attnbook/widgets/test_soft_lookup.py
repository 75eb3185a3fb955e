"""The soft lookup: its Python, its JavaScript, and the page in a browser."""

import math
import random

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend, attention_weights
from attnbook.widgets.soft_lookup import (
    COLORS,
    SoftLookup,
    draw_hidden_coordinates,
)
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


def test_its_weights_equal_scaled_dot_product_attention():
    for state in states():
        query, key, _, scale = tensors(state)
        wanted = attention_weights(query, key, scale=scale)[0]
        found = torch.tensor(SoftLookup(**state).weights()).double()
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


def test_hidden_coordinates_are_standard_normal():
    drawn = torch.tensor([draw_hidden_coordinates(row, 1022) for row in range(9)])
    assert (drawn.mean(-1).abs() < 0.15).all()
    assert ((drawn.std(-1) - 1).abs() < 0.1).all()
    assert (torch.corrcoef(drawn) - torch.eye(9)).abs().max() < 0.15


def test_the_fallback_is_a_table_of_the_numbers():
    data, _ = SoftLookup()._repr_mimebundle_()
    text = data["text/html"]
    fallback = text.split("</script>")[1]
    row = "<td>green</td><td>0.00, 1.00, 0.00</td><td>0.54</td><td>0.27</td>"
    assert row in fallback
    assert "The output: 0.70, 0.27, 0.02. Entropy: 0.68 nats." in fallback
    assert '"width": 2' in text


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"entries": []}, "0 keys given; there may be 1 to 8"),
        ({"entries": [3]}, "needs a label, a place and a value, not 3"),
        (
            {"entries": [{**COLORS[0], "place": [0]}]},
            r"'red' must be 2 numbers",
        ),
        (
            {"entries": [{**COLORS[0], "value": [0, 0, 2]}]},
            "holds 2.0, outside",
        ),
        ({"query": [0, math.nan]}, "the query holds nan, outside -3 to 3"),
        ({"query": [None, 1]}, r"holds no number in \[None, 1\]"),
        ({"query": [1, 2, 3]}, r"must be 2 numbers, not \[1, 2, 3\]"),
        ({"temperature": 0}, "temperature is 0.0, outside 0.01 to 100"),
        ({"width": 1}, "width is 1, outside 2 to 1024"),
    ],
)
def test_invalid_values_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        SoftLookup(**given)


@pytest.fixture(scope="module")
def script():
    return Module("soft_lookup")


@pytest.mark.javascript
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
        spread = torch.special.entr(wanted).sum().item()
        assert script.call("entropy", shares) == pytest.approx(spread, abs=1e-6)
        mixed = script.call("mix", shares, value.tolist())
        output = attend(query, key, value, scale=scale)[0]
        found = torch.tensor(mixed).double()
        torch.testing.assert_close(found, output, atol=1e-6, rtol=1e-5)


@pytest.mark.javascript
@pytest.mark.parametrize("row", [0, 1, 8])
def test_python_and_javascript_draw_the_same_hidden_coordinates(script, row):
    assert script.call("drawHiddenCoordinates", row, 50) == pytest.approx(
        draw_hidden_coordinates(row, 50)
    )


@pytest.mark.javascript
def test_large_scores_do_not_overflow(script):
    assert script.call("softmax", [5000, 5000, -5000]) == [0.5, 0.5, 0]


@pytest.mark.javascript
def test_arrow_keys_move_a_point_and_stop_at_the_edge(script):
    assert script.call("moveByKey", [0, 0.2], "ArrowUp", False) == [0, 0.3]
    assert script.call("moveByKey", [0, 0], "ArrowLeft", True) == [-0.5, 0]
    assert script.call("moveByKey", [3, 0], "ArrowRight", False) == [3, 0]
    assert script.call("moveByKey", [0, 0], "toString", False) is None


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    assert script.call("cleanState", {}) == {
        "entries": [],
        "query": [0, 0],
        "temperature": 1,
        "width": 2,
        "divided": True,
    }
    odd = {
        "entries": [{"place": ["x", 9], "value": None}, None],
        "temperature": "NaN",
        "width": 1e9,
        "query": "ab",
        "divided": False,
    }
    drawn = script.call("cleanState", odd)
    assert [k["place"] for k in drawn["entries"]] == [[0, 3], [0, 0]]
    assert (drawn["temperature"], drawn["width"]) == (1, 1024)
    assert not drawn["divided"]


@pytest.mark.javascript
@pytest.mark.parametrize(
    ("given", "opening"),
    [
        (
            {"query": [3, 0], "temperature": 0.1},
            "Close to a hard lookup: red",
        ),
        ({"temperature": 100}, "Nearly the mean of all values."),
        ({"query": [0, 0]}, "Nearly the mean of all values."),
        ({}, "A mixture, most of it from red (0.70)."),
        ({"query": [-2, 0]}, "green and blue are about equal (0.49 each)."),
        ({"entries": COLORS[:1]}, "One key: it gets all the weight"),
    ],
)
def test_the_result_is_described_in_words(script, given, opening):
    words = script.call("describeResult", SoftLookup(**given).state())
    assert words.startswith(opening)
    assert words.endswith(" of red, green, blue.")


@pytest.mark.javascript
def test_scores_are_short(script):
    given = [-0.04, 0.04, 99.94, 99.96, -1234.4, 9000]
    shown = [script.call("formatScore", x) for x in given]
    assert shown == ["0.0", "0.0", "99.9", "100", "-1234", "9000"]


def test_larger_widths_spread_the_scores_unless_divided_by_sqrt_d():
    def spread(width, divided):
        scores = SoftLookup(width=width, divided=divided).scores()
        return torch.tensor(scores).std().item()

    assert spread(1024, False) == pytest.approx(32 * spread(1024, True))
    assert spread(1024, True) < 3 * spread(2, True)
