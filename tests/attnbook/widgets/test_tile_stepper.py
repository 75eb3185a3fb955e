"""The tile stepper: what runs along is the library's, and so are the bytes."""

import itertools
import math
import random

import pytest
import torch

from attnbook import masks
from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.tiled import attend_tiled
from attnbook.profiling import Sizes, steps
from attnbook.widgets.tile_stepper import BYTES, D, E, TileStepper
from javascript import Module


def states(count=150, seed=0):
    """Yield states at random; small, ragged and whole tiles, causal or not."""
    rng = random.Random(seed)
    for n in range(count):
        sizes = {x: rng.randint(1, 10) for x in ("T", "S", "rows", "columns")}
        widget = TileStepper(**sizes, causal=n % 2 == 1)
        step = rng.randint(0, len(widget.list_tiles()))
        yield sizes | {"causal": n % 2 == 1, "step": step}


def tensors(widget):
    rows = (
        (widget.query, widget.T),
        (widget.key, widget.S),
        (widget.value, widget.S),
    )
    return [torch.tensor(x[:n], dtype=torch.float64) for x, n in rows]


def test_after_all_tiles_the_output_is_attention():
    for given in states(40):
        widget = TileStepper(**given | {"step": 100})
        maximum, total, output = widget.accumulate()
        mask = None
        if widget.causal:
            mask = masks.causal(widget.T, widget.S)
        query, key, value = tensors(widget)
        right = attend(query, key, value, mask)
        torch.testing.assert_close(output, right)
        lse = widget.scores().logsumexp(-1)
        torch.testing.assert_close(maximum + total.log(), lse)
        if mask is None:
            tiled = attend_tiled(query, key, value, widget.rows)
            torch.testing.assert_close(output, tiled[0])
            torch.testing.assert_close(maximum + total.log(), tiled[1])


def test_every_unmasked_pair_is_in_one_tile():
    for given in states(60, seed=1):
        widget = TileStepper(**given)
        met = torch.zeros(widget.T, widget.S)
        for row, column in widget.list_tiles():
            if column >= 0:
                met[row : row + widget.rows, column : column + widget.columns] += 1
        seen = widget.scores() > -torch.inf
        assert met.max() <= 1
        assert (met[seen] == 1).all()
        assert {row for row, _ in widget.list_tiles()} == {
            *range(0, widget.T, widget.rows)
        }


def test_bytes_are_those_of_chapter_10():
    """It counts one number a query more: the logsumexp."""
    for T, S, rows, columns in itertools.product((1, 4, 7, 10), repeat=4):
        widget = TileStepper(T, S, rows, columns, step=100)
        sizes = Sizes(1, 1, T, S, D, E, itemsize=BYTES)
        count = steps.count_tiled(sizes, rows)
        read, written = widget.count_bytes()
        assert (read, written - BYTES * T) == (count.read, count.written)
        usual = steps.count_steps(sizes)
        parts = [usual[x] for x in ("scores", "softmax", "values")]
        assert widget.count_standard_bytes() == (
            sum(x.read for x in parts),
            sum(x.written for x in parts),
        )


def test_bytes_grow_with_every_step():
    walk = [
        sum(TileStepper(causal=True, step=n).count_bytes())
        for n in range(len(TileStepper(causal=True).list_tiles()) + 1)
    ]
    assert walk[0] == 0
    assert all(a < b for a, b in itertools.pairwise(walk))


def test_the_fallback_is_a_table_of_the_numbers():
    data, _ = TileStepper(T=3, S=2, causal=True, step=1)._repr_mimebundle_()
    text = data["text/html"]
    fallback = text.split("</script>")[1]
    assert "After 1 of 2 tiles of 2 queries and 3 keys" in fallback
    assert "3 queries and 2 keys, causal" in fallback
    nothing = "<th>query 0</th><td>nothing seen</td><td>0</td><td>zeros</td>"
    assert nothing in fallback
    assert "Read 80 bytes and wrote 24" in fallback


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"T": 0}, "T must be a whole number from 1 to 10, not 0"),
        ({"S": 11}, "S must be a whole number from 1 to 10, not 11"),
        ({"rows": 0}, "rows must be a whole number from 1 to 10, not 0"),
        ({"columns": -3}, "columns must be a whole number .* not -3"),
        ({"step": -1}, "step must be a whole number from 0 to 100, not -1"),
    ],
)
def test_invalid_sizes_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        TileStepper(**given)


@pytest.fixture(scope="module")
def script():
    return Module("tile_stepper")


@pytest.mark.javascript
def test_the_pages_numbers_are_the_librarys(script):
    for given in states():
        widget = TileStepper(**given)
        state = widget.state()
        assert script.call("cleanState", state) == state
        assert [
            tuple(x) for x in script.call("listTiles", state)
        ] == widget.list_tiles()
        known = script.call("runSteps", state)
        maximum, total, output = widget.accumulate()
        for t, one in enumerate(known):
            if not total[t]:
                assert one["total"] == 0 and one["maximum"] is None  # -inf
                continue
            assert math.isclose(one["maximum"], maximum[t], abs_tol=1e-6)
            assert math.isclose(one["total"], total[t], rel_tol=1e-6)
            mean = torch.tensor(script.call("computeAverage", one))
            torch.testing.assert_close(mean.double(), output[t], rtol=1e-6, atol=1e-6)
        assert tuple(script.call("countBytes", state)) == widget.count_bytes()
        assert (
            tuple(script.call("countStandardBytes", state))
            == widget.count_standard_bytes()
        )


@pytest.mark.javascript
def test_the_pages_factor_brings_old_sums_to_the_new_maximum(script):
    for step in range(1, 10):
        before, after = (
            script.call("runSteps", TileStepper(step=n).state())
            for n in (step - 1, step)
        )
        row, column = TileStepper().list_tiles()[step - 1]
        scores = TileStepper().scores()
        value = torch.tensor(TileStepper().value).double()
        for t in range(row, min(row + 2, 5)):
            if before[t]["maximum"] is None:
                continue
            keys = slice(column, column + 3)
            new = (scores[t, keys] - after[t]["maximum"]).exp()
            total = before[t]["total"] * after[t]["factor"] + new.sum()
            assert math.isclose(after[t]["total"], total, rel_tol=1e-9)
            sums = new @ value[:7][keys]
            old = torch.tensor(before[t]["output"]).double()
            torch.testing.assert_close(
                torch.tensor(after[t]["output"]).double(),
                old * after[t]["factor"] + sums,
                rtol=1e-5,
                atol=1e-6,
            )


@pytest.mark.javascript
def test_a_step_is_described_in_words(script):
    def describe(**given):
        return script.call("describeStep", TileStepper(**given).state())

    assert (
        describe(step=0) == "Nothing is done yet. 9 tiles are to be walked, row by row."
    )
    assert "left out" in describe(step=0, causal=True, T=7, S=7)
    first = describe(step=1)
    assert first.startswith("Step 1 of 9. Queries 0 to 1 meet keys 0 to 2.")
    assert "first tile: nothing to rescale" in first
    assert "divided by the totals and written" in describe(step=3)
    assert describe(step=9).endswith("All is done.")
    one = describe(T=1, S=1, step=1)
    assert one.startswith("Step 1 of 1. Query 0 meets key 0.")
    empty = describe(T=7, S=3, rows=3, causal=True, step=1)
    assert "Queries 0 to 2 see no key: zeros are written." in empty
    texts = [describe(step=n) for n in range(1, 10)]
    assert any("rises from" in x for x in texts)


@pytest.mark.javascript
def test_a_new_maximum_is_described_with_its_factor(script):
    for given in states(60, seed=3):
        widget = TileStepper(**given)
        text = script.call("describeStep", widget.state())
        if "rises from" not in text:
            continue
        known = script.call("runSteps", widget.state())
        t = int(text.partition("The maximum of query ")[2].split()[0])
        one = known[t]
        assert one["maximum"] > one["before"]
        factor = math.exp(one["before"] - one["maximum"])
        assert math.isclose(one["factor"], factor, rel_tol=1e-9)
        assert f"multiplied by {factor:.2f}" in text


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    drawn = script.call("cleanState", {})
    assert (drawn["T"], drawn["S"], drawn["step"]) == (5, 7, 0)
    odd = {
        "T": "x",
        "S": 1e9,
        "rows": -3,
        "columns": None,
        "causal": "yes",
        "step": "Infinity",
        "query": "no",
        "key": [["NaN", 1], 3],
        "value": None,
    }
    drawn = script.call("cleanState", odd)
    assert (drawn["T"], drawn["S"]) == (5, 10)
    assert (drawn["rows"], drawn["columns"]) == (1, 3)
    assert (drawn["causal"], drawn["step"]) == (False, 0)
    drawn["step"] = 7
    known = script.call("runSteps", drawn)
    assert known[0]["total"] == 10  # all scores are 0
    assert script.call("cleanState", drawn | {"step": 10**6})["step"] == 20


@pytest.mark.javascript
def test_numbers_are_short(script):
    assert script.call("formatNumber", -0.001) == "0.00"
    assert script.call("formatNumber", -1.5) == "\u22121.50"


def test_a_query_without_keys_gets_zeros():
    widget = TileStepper(T=7, S=3, causal=True, step=100)
    output = widget.accumulate()[2]
    assert not output[:4].any()
    seen = widget.scores() > -torch.inf
    right = masked_softmax(widget.scores(), seen) @ tensors(widget)[2]
    torch.testing.assert_close(output, right)
