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
    count_peak_training,
    count_saved_for_backward,
)
from attnbook.profiling.sizes import Sizes

SIZES = [
    Sizes(1, 4, 256, 256, 32),
    Sizes(2, 3, 5, 7, 11, 13),
    Sizes(1, 2, 100, 100, 8, itemsize=8),
]
DTYPES = {4: torch.float32, 8: torch.float64}
each = pytest.mark.parametrize("sizes", SIZES, ids=repr)
on_each_device = pytest.mark.parametrize("device", ["cpu", "meta"])


def inputs(s, make=torch.randn):
    shapes = (s.T, s.D), (s.S, s.D), (s.S, s.E), (s.T, s.E)
    return [make(s.B, s.H, *x, dtype=DTYPES[s.itemsize]) for x in shapes]


def close(counted, device="cpu"):
    """The allocator rounds up, and autograd has a number or two of its own."""
    return pytest.approx(counted, abs=0 if device == "meta" else 2048)


@on_each_device
def test_the_peak_counts_simultaneous_tensors(device):
    def call():
        a = torch.ones(10000, device=device)
        b = a + 1
        del a
        return b, torch.ones(5000, device=device)

    def kept():
        tensors = [torch.ones(10000, device=device) for _ in range(5)]
        tensors[0].view(100, 100).add_(1)
        return tensors

    assert measure_peak_bytes(call, device) == close(2 * 40000, device)
    assert measure_peak_bytes(kept, device) == close(5 * 40000, device)


@on_each_device
def test_saved_storage_is_counted_once(device):
    x = torch.empty(7, 5, device=device, requires_grad=True)
    w = torch.empty(5, 3, device=device, requires_grad=True)
    both = 4 * (7 * 5 + 5 * 3)
    assert count_saved_bytes(lambda: x @ w) == both
    assert count_saved_bytes(lambda: (x @ w).exp()) == both + 4 * 7 * 3
    assert count_saved_bytes(lambda: (x[:2] @ w).exp(), [x, w]) == 4 * 2 * 3
    assert count_saved_bytes(lambda: x * x) == 4 * 7 * 5
    assert count_saved_bytes(lambda: (x.detach() @ w.detach()).exp()) == 0


@on_each_device
@each
def test_counted_memory_is_that_of_the_reference(sizes, device):
    *leaves, upstream = inputs(
        sizes, torch.randn if device == "cpu" else make_meta_tensor
    )
    with torch.no_grad():
        found = measure_peak_bytes(lambda: attend(*leaves), device)
    assert found == close(count_peak_forward(sizes), device)
    leaves = [x.requires_grad_() for x in leaves]
    found = count_saved_bytes(lambda: attend(*leaves), leaves)
    assert found == count_saved_for_backward(sizes)
    found = measure_peak_bytes(
        lambda: torch.autograd.grad(attend(*leaves), leaves, upstream), device
    )
    assert found == close(count_peak_training(sizes), device)


@pytest.mark.parametrize("rows", [37, 1000])
@each
def test_query_chunks_use_the_counted_memory_and_equal_the_reference(sizes, rows):
    given = inputs(sizes)[:3]
    with torch.no_grad():
        found = measure_peak_bytes(lambda: attend_in_query_chunks(*given, rows))
    assert found == close(count_peak_query_chunks(sizes, rows))
    chunked = attend_in_query_chunks(*given, rows)
    torch.testing.assert_close(chunked, attend(*given), rtol=1e-4, atol=1e-5)
