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


def test_its_scores_are_the_librarys():
    for state in states():
        made, wanted = PositionExplorer(**state), scores(state)
        m, n = state["positions"]
        found = torch.tensor(made.score(m, n)).double()
        torch.testing.assert_close(found, wanted[m, n], **near)


def test_only_the_distance_matters_to_a_rotation():
    for state in states():
        made = PositionExplorer(**state)
        here, there = made.score(5, 12), made.score(40, 47)
        same = here == pytest.approx(there, abs=1e-9)
        assert same == (state["method"] == "rotary")


def test_the_fallback_is_a_table_of_the_numbers():
    made = PositionExplorer(base=100, width=4, pair=1)
    data, _ = made._repr_mimebundle_()
    text = data["text/html"]
    fallback = text.split("</script>")[1]
    assert "<td>1</td><td>6.28</td><td>-6.00</td>" in fallback
    assert "<td>2</td><td>62.8</td><td>-0.60</td>" in fallback
    assert "a query at 20 and a key at 14" in fallback
    here = f"{made.score(20, 14):.2f}"
    assert f"Score: {here}. At all positions" in fallback
    assert f"distance: {here} to {here}." in fallback
    assert '"width": 4' in text


def test_the_sinusoidal_score_depends_on_the_positions():
    made = PositionExplorer("sinusoidal")
    same = [made.score(p, p - 6) for p in range(6, 64)]
    assert f"{min(same):.2f} to {max(same):.2f}." in made.fallback()
    assert max(same) - min(same) > 1


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "alibi"}, "one of rotary, sinusoidal, not 'alibi'"),
        ({"query": [1]}, r"the query must be 2 numbers, not \[1\]"),
        ({"key": [None, 1]}, r"the key holds no number: \[None, 1\]"),
        ({"key": [3, 3]}, "the key has the length 4.24; the plane shows up to"),
        ({"query": [0, math.nan]}, "the query has the length nan"),
        ({"positions": [0, 64]}, r"from 0 to 63, not \[0, 64\]"),
        ({"positions": [0]}, r"2 whole numbers from 0 to 63, not \[0\]"),
        ({"width": 7}, "width is 7, and pairs need an even one"),
        ({"width": 64}, "width is 64, outside 2 to 32"),
        ({"width": 4}, "pair is 2, but a width of 4 has 2"),
        ({"base": 1}, "base is 1.0, outside 2 to 1e"),
    ],
)
def test_invalid_values_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        PositionExplorer(**given)


@pytest.fixture(scope="module")
def script():
    return Module("position_explorer")


@pytest.mark.javascript
def test_the_page_computes_what_the_library_does(script):
    for state in states():
        wanted, (m, n) = scores(state), state["positions"]
        found = torch.tensor(script.call("computeScore", state)).double()
        torch.testing.assert_close(found, wanted[m, n], **near)
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


@pytest.mark.javascript
def test_the_band_holds_the_scores_of_every_distance(script):
    for state in states(6):
        wanted, found = scores(state), script.call("computeBand", state)
        assert [entry["distance"] for entry in found] == [*range(-63, 64)]
        for entry in found:
            same = wanted.diagonal(entry["distance"])
            for side, value in ("low", same.min()), ("high", same.max()):
                assert entry[side] == pytest.approx(float(value), abs=1e-6)


@pytest.mark.javascript
def test_a_tip_that_is_dragged_stays_where_it_was_put(script):
    for state in states():
        step = state["base"] ** (-2 * state["pair"] / state["width"])
        at, seen = state["positions"][0], state["query"]
        pair = script.call("decodePair", state["method"], seen, at, step)
        back = script.call("encodePair", state["method"], pair, at, step)
        assert back == pytest.approx(seen, abs=1e-9)


@pytest.mark.javascript
def test_the_path_ends_at_the_encoded_vector(script):
    for state in states():
        step = state["base"] ** (-2 * state["pair"] / state["width"])
        angle = state["positions"][0] * step
        way = script.call("tracePath", state["method"], state["query"], angle)
        seen = script.call("encodePair", state["method"], state["query"], 1, angle)
        assert way[0] == pytest.approx(state["query"])
        assert way[-1] == pytest.approx(seen, abs=1e-9)


@pytest.mark.javascript
@pytest.mark.parametrize(
    ("given", "to", "then"),
    [
        ([20, 14], 25, [25, 19]),
        ([20, 14], 0, [6, 0]),
        ([20, 14], 63, [63, 57]),
        ([14, 20], 63, [57, 63]),
        ([0, 63], 30, [0, 63]),
    ],
)
def test_both_positions_move_until_one_reaches_the_end(script, given, to, then):
    assert script.call("moveTogether", given, to) == then


@pytest.mark.javascript
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "key at 14, 6 steps before it: score "),
        ({}, "The score is the same at all positions with this distance."),
        ({"positions": [3, 4]}, "Query at 3, key at 4, 1 step after it"),
        ({"positions": [5, 5]}, "Query and key both at 5: score"),
        ({"positions": [0, 63]}, "No other positions here are so far"),
        ({"method": "sinusoidal"}, "At the same distance elsewhere: "),
        (
            {"method": "sinusoidal", "query": [0, 0], "key": [0, 0]},
            "The score is the same at all positions",
        ),
    ],
)
def test_the_result_is_described_in_words(script, given, words):
    state = PositionExplorer(**given).state()
    report = script.call("describeScore", state)
    assert words in report
    m, n = state["positions"]
    score = f"{PositionExplorer(**given).score(m, n):.2f}"
    assert f"score {score.replace('-', chr(0x2212))}." in report


@pytest.mark.javascript
def test_the_described_range_is_the_computed_one(script):
    state = PositionExplorer("sinusoidal").state()
    same = scores(state).diagonal(-6)
    report = script.call("describeScore", state).replace(chr(0x2212), "-")
    assert report.endswith(f"elsewhere: {same.min():.2f} to {same.max():.2f}.")


@pytest.mark.javascript
def test_numbers_are_short(script):
    shown = [script.call("formatNumber", x) for x in (-0.004, 1.005, -2.5)]
    assert shown == ["0.00", "1.00", "\N{MINUS SIGN}2.50"]
    long = [
        script.call("formatWavelength", x) for x in (6.28319, 62.83, 1987.3, 123456)
    ]
    assert long == ["6.28", "62.8", "1,990", "123,000"]


@pytest.mark.javascript
def test_arrow_keys_move_a_tip(script):
    assert script.call("moveByKey", [0, 1], "ArrowUp", False) == [0, 1.1]
    assert script.call("moveByKey", [0, 0], "ArrowLeft", True) == [-0.5, 0]
    assert script.call("moveByKey", [0, 0], "toString", False) is None
    assert script.call("limitLength", [6, 8]) == pytest.approx([1.8, 2.4])
    assert script.call("limitLength", [0, 0]) == [0, 0]


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    assert script.call("cleanState", {}) == {
        "method": "rotary",
        "query": [0, 0],
        "key": [0, 0],
        "positions": [0, 0],
        "pair": 0,
        "width": 16,
        "base": 10000,
    }
    odd = {
        "method": "</script>",
        "query": ["x", 9],
        "key": "ab",
        "positions": [1e9, "NaN"],
        "pair": 99,
        "width": 7,
        "base": -1,
    }
    drawn = script.call("cleanState", odd)
    assert (drawn["method"], drawn["query"]) == ("rotary", [0, 3])
    assert (drawn["positions"], drawn["width"]) == ([63, 0], 8)
    assert (drawn["pair"], drawn["base"]) == (3, 2)


@pytest.mark.javascript
def test_wavelengths_run_from_one_turn_to_the_base(script):
    waves = [script.call("computeWavelength", 16, 1e4, i) for i in range(8)]
    assert waves[0] == pytest.approx(2 * math.pi)
    assert waves == sorted(waves)
    assert waves[-1] == pytest.approx(2 * math.pi * 1e4 ** (7 / 8))
