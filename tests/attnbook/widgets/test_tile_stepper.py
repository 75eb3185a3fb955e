"""The tile stepper: what runs along is the library's, and so are the bytes."""

import itertools
import math
import random

import pytest
import torch

from attnbook import masks
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


def test_bytes_are_those_of_chapter_10():
    """It counts one number a query more: the logsumexp."""
    for T, S, rows, columns in itertools.product((1, 4, 7, 10), repeat=4):
        widget = TileStepper(T=T, S=S, rows=rows, columns=columns, step=100)
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


@pytest.fixture(scope="module")
def script():
    return Module("tile_stepper")


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
