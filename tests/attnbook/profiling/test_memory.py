"""Every formula for memory against the allocator, and against a trace."""

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend, attend_in_query_chunks
from attnbook.profiling.allocations import (
    count_saved_bytes,
    make_meta_tensor,
    measure_peak_bytes,
)
from attnbook.profiling.memory import (
    count_peak_forward,
    count_peak_query_chunks,
    count_peak_tiles,
    count_peak_training,
    count_saved_for_backward,
)
from attnbook.profiling.sizes import Sizes

SIZES = [
    Sizes(1, 4, 256, 256, 32),
    Sizes(2, 2, 64, 512, 16, 64),
    Sizes(2, 3, 5, 7, 11, 13),
    Sizes(1, 2, 100, 100, 8, itemsize=8),
]
DTYPES = {4: torch.float32, 8: torch.float64}
each = pytest.mark.parametrize("sizes", SIZES, ids=repr)


def inputs(s, make=torch.randn):
    dtype = DTYPES[s.itemsize]
    shapes = (s.T, s.D), (s.S, s.D), (s.S, s.E), (s.T, s.E)
    return [make(s.B, s.H, *shape, dtype=dtype) for shape in shapes]


def both(function, given):
    *leaves, upstream = given
    leaves = [x.requires_grad_() for x in leaves]
    return lambda: torch.autograd.grad(function(*leaves), leaves, upstream)


# The allocator rounds up, and autograd has a number or two of its own.
def close(counted):
    return pytest.approx(counted, abs=2048)


@each
def test_the_counted_forward_peak_equals_the_allocators(sizes):
    given = inputs(sizes)[:3]
    with torch.no_grad():
        assert measure_peak_bytes(lambda: attend(*given)) == close(
            count_peak_forward(sizes)
        )
        given = inputs(sizes, make_meta_tensor)[:3]
        found = measure_peak_bytes(lambda: attend(*given), "meta")
    assert found == count_peak_forward(sizes)


@each
def test_the_counted_training_peak_equals_the_allocators(sizes):
    call = both(attend, inputs(sizes))
    assert measure_peak_bytes(call) == close(count_peak_training(sizes))
    call = both(attend, inputs(sizes, make_meta_tensor))
    assert measure_peak_bytes(call, "meta") == count_peak_training(sizes)


@each
def test_bytes_saved_for_the_backward_pass_equal_autograds(sizes):
    leaves = [x.requires_grad_() for x in inputs(sizes)[:3]]
    found = count_saved_bytes(lambda: attend(*leaves), leaves)
    assert found == count_saved_for_backward(sizes)


@pytest.mark.parametrize("rows", [37, 1000])
@each
def test_query_chunks_use_the_counted_memory_and_equal_the_reference(sizes, rows):
    given = inputs(sizes)[:3]
    with torch.no_grad():
        found = measure_peak_bytes(lambda: attend_in_query_chunks(*given, rows))
    assert found == close(count_peak_query_chunks(sizes, rows))
    torch.testing.assert_close(
        attend_in_query_chunks(*given, rows),
        attend(*given),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_layer_of_gpt_2_at_4096_tokens():
    sizes = Sizes(1, 12, 4096, 4096, 64)
    assert sizes.scores == 768 * 2**20  # "750 MB", in binary units
    given = [make_meta_tensor(1, 12, 4096, 64) for _ in range(3)]
    with torch.no_grad():
        found = measure_peak_bytes(lambda: attend(*given), "meta")
    assert found == count_peak_forward(sizes) == 2 * sizes.scores
    *leaves, up = [
        x.requires_grad_() for x in (*given, make_meta_tensor(1, 12, 4096, 64))
    ]
    call = both(attend, (*leaves, up))
    found = measure_peak_bytes(call, "meta")
    assert found == count_peak_training(sizes) > 3 * sizes.scores
    left = count_saved_bytes(lambda: attend(*leaves), leaves)
    assert left == count_saved_for_backward(sizes)
    assert 1 < left / sizes.scores < 1.02


def tiles_by_hand(query, key, value, rows, columns):
    """Attend tile by tile with running maximum and sum: chapter 11's loop."""
    parts = []
    output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    for i in range(0, query.shape[-2], rows):
        mine = query[..., i : i + rows, :]
        top = mine.new_full(mine.shape[:-1], -torch.inf)
        sums = torch.zeros_like(top)
        for j in range(0, key.shape[-2], columns):
            scores = mine @ key[..., j : j + columns, :].mT
            scores *= query.shape[-1] ** -0.5
            new = torch.maximum(top, scores.amax(-1))
            weights = (scores - new[..., None]).exp_()
            shrink = (top - new).exp()
            sums = sums * shrink + weights.sum(-1)
            top = new
            output[..., i : i + rows, :] *= shrink[..., None]
            tile = weights @ value[..., j : j + columns, :]
            output[..., i : i + rows, :] += tile
            parts.append(scores.nelement())
            del scores, weights, tile
        output[..., i : i + rows, :] /= sums[..., None]
    return output, parts


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (128, 32), (999, 999)])
def test_tiles_use_at_most_the_counted_memory(rows, columns):
    sizes = Sizes(1, 4, 256, 256, 8)
    given = inputs(sizes)[:3]
    output, parts = tiles_by_hand(*given, rows, columns)
    torch.testing.assert_close(output, attend(*given), rtol=1e-4, atol=1e-5)
    tile = max(parts) * sizes.itemsize
    counted = count_peak_tiles(sizes, rows, columns)
    found = measure_peak_bytes(lambda: tiles_by_hand(*given, rows, columns))
    # Beside what is counted, this loop holds a strip's products and powers.
    strip = sizes.output * min(rows, sizes.T) // sizes.T
    assert counted - 2 * tile < found < counted + 2 * strip
    assert counted >= 2 * tile


@pytest.mark.refusal
def test_empty_query_chunks_and_tiles_are_refused():
    sizes = SIZES[0]
    given = inputs(sizes)[:3]
    for call in (
        lambda: attend_in_query_chunks(*given, 0),
        lambda: count_peak_query_chunks(sizes, 0),
    ):
        with pytest.raises(ValueError, match=r"at least 1(?: row)?, not 0"):
            call()
    with pytest.raises(ValueError, match="a tile of 4 by 0 holds nothing"):
        count_peak_tiles(sizes, 4, 0)
