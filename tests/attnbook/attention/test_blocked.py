"""Windows and masks in blocks; test_reference.py compares them with `attend`."""

import pytest
import torch
from torch.autograd import forward_ad

from attnbook import masks
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.scaled_dot_product import attend
from attnbook.profiling.allocations import measure_peak_bytes
from precision import assert_equals_reference, attend_with_sink, draw


def draw_inputs(T, S):
    return draw((2, 2, T, 5), (2, 2, S, 5), (2, 2, S, 7))


@pytest.mark.parametrize("shift", [-50, 0, 70])
@pytest.mark.parametrize("size", [1, 40, 520, 2000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_long_window_equals_its_mask_with_gradients(shift, size, dtype):
    T, S = 640, 640 + shift
    given = draw((2, T, 2, 8), (2, S, 2, 8), (2, S, 2, 8), (2, 2, T, 8))
    # The heads lie inside, as a projection leaves them.
    *inputs, upstream = (x.to(dtype) for x in given)
    inputs = [x.transpose(1, 2) for x in inputs]
    mask = masks.window(T, S, size)
    assert_equals_reference(
        lambda *x: attend_window(*x, size),
        lambda *x: attend(*x, mask),
        inputs,
        upstream,
    )
    expected = attend(*inputs, mask)  # without gradients other products may run
    torch.testing.assert_close(attend_window(*inputs, size), expected)


@pytest.mark.parametrize("width", [8, 7])
@pytest.mark.parametrize("size", [40, 520])
@pytest.mark.parametrize("shift", [-50, 0])
def test_a_window_takes_a_sink_for_each_head(shift, size, width):
    T, S = 640, 640 + shift
    *inputs, upstream = draw(
        (2, 2, T, 8), (2, 2, S, 8), *[(2, 2, n, width) for n in (S, T)]
    )
    mask, sinks = masks.window(T, S, size), torch.tensor([-1.0, 2.0]).double()

    assert_equals_reference(
        lambda *x: attend_window(*x[:3], size, sinks=x[3]),
        lambda *x: attend_with_sink(*x[:3], mask, x[3]),
        [*inputs, sinks],
        upstream,
    )
    found = attend_window(*inputs, size, sinks=sinks)
    torch.testing.assert_close(found, attend_with_sink(*inputs, mask, sinks))


@pytest.mark.parametrize("width", [8, 7])
def test_a_wide_window_never_holds_a_whole_mask(width):
    query, key, value = (x.float() for x in draw(*[(1, 1, 2048, 8)] * 3))
    value = value[..., :width]
    peak = measure_peak_bytes(lambda: attend_window(query, key, value, 2048))
    assert peak < 2048**2


def test_a_wide_window_keeps_the_tangent():
    inputs = [x.float() for x in draw(*[(1, 1, 600, 8)] * 3)]
    query, *more = inputs
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(query, torch.ones_like(query))
        mask = masks.window(600, 600, 520)
        found, expected = (
            forward_ad.unpack_dual(x).tangent
            for x in (attend_window(dual, *more, 520), attend(dual, *more, mask))
        )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("size", [40, 520])
@pytest.mark.parametrize("spoiled", [torch.nan, torch.inf])
def test_a_key_outside_the_window_reaches_no_query(size, spoiled):
    inputs = [x.float() for x in draw(*[(1, 2, 640, 8)] * 3)]
    expected = attend_window(*inputs, size)
    inputs[1][:, :, 9] = spoiled
    found = attend_window(*inputs, size)
    torch.testing.assert_close(found[:, :, :9], expected[:, :, :9])
    later = slice(9 + size, None)
    torch.testing.assert_close(found[:, :, later], expected[:, :, later])


@pytest.mark.compiled
def test_a_window_can_be_mapped_and_compiled():
    query, key, value = draw_inputs(40, 40)
    value = value[..., :5]
    expected = attend_window(query, key, value, 7)

    def call(query):
        return attend_window(query, key, value, 7)

    given = query, key, value
    mapped = torch.vmap(lambda *x: attend_window(*(y[None] for y in x), 7)[0])(*given)
    torch.testing.assert_close(mapped, expected)
    compiled = torch.compile(call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(query), expected)


@pytest.mark.parametrize("shape", [(17,), (11, 1), (2, 1, 1, 17)])
def test_a_mask_can_broadcast(shape):
    inputs = draw_inputs(11, 17)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5
    found = attend_in_blocks(*inputs, mask, rows=4)
    torch.testing.assert_close(found, attend(*inputs, mask))


def test_masked_out_blocks_are_not_read():
    query, key, value = draw_inputs(12, 12)
    mask = masks.window(12, 12, 4)
    expected = attend(query, key, value, mask)
    # The last chunk of 3 attends to keys 6 to 11: blocks 2 and 3.
    key[..., :6, :] = value[..., :6, :] = torch.nan
    for found in (
        attend_window(query, key, value, 4, rows=3),
        attend_in_blocks(query, key, value, mask, rows=3),
    ):
        torch.testing.assert_close(found[..., 9:, :], expected[..., 9:, :])


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("function", "change", "message"),
    [
        (attend_window, {"size": 4, "rows": 0}, "rows must be at least 1, but is 0"),
        (attend_window, {"size": 0}, "size must be at least 1, but is 0"),
        (
            attend_in_blocks,
            {"mask": torch.ones(3, 4).bool()},
            r"\(3, 4\) does not broadcast to 3 queries",
        ),
        (
            attend_window,
            {"size": 4, "query": torch.ones(3, 7).double()},
            r"query must have 4 axes .* but has shape \(3, 7\)",
        ),
        (
            attend_window,
            {"size": 4, "query": torch.ones(1, 1, 3, 1)},
            "query is torch.float32 on cpu, but the key is torch.float64",
        ),
        (
            attend_window,
            {"size": 4, "key": torch.ones(2, 2, 5, 5).int()},
            "key is torch.int32, but must be floating point",
        ),
        (
            attend_window,
            {"size": 4, "value": torch.ones(1, 1, 5, 1, device="meta")},
            "query is torch.float64 on cpu, but the value is torch.float32 on meta",
        ),
    ],
)
def test_what_does_not_fit_is_refused(function, change, message):
    query, key, value = draw_inputs(3, 5)
    given = {"query": query, "key": key, "value": value} | change
    with pytest.raises(ValueError, match=message):
        function(**given)
