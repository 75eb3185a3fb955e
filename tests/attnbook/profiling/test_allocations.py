import pytest
import torch

from attnbook.profiling.allocations import (
    count_saved_bytes,
    make_meta_tensor,
    measure_peak_bytes,
)


def close(counted, device):
    """The allocator rounds up; without numbers, bytes are exact."""
    return pytest.approx(counted, rel=0.0 if device == "meta" else 0.01)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_peak_counts_simultaneous_tensors(device):
    def call():
        a = torch.ones(1000, device=device)
        b = a + 1
        del a
        return b, torch.ones(500, device=device)

    def kept():
        tensors = [torch.ones(100, device=device) for _ in range(5)]
        tensors[0].view(10, 10).add_(1)
        return tensors

    assert measure_peak_bytes(call, device) == close(2 * 4000, device)
    assert measure_peak_bytes(kept, device) == close(5 * 400, device)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_saved_storage_is_counted_once(device):
    x = torch.empty(7, 5, device=device, requires_grad=True)
    w = torch.empty(5, 3, device=device, requires_grad=True)
    both = 4 * (7 * 5 + 5 * 3)
    assert count_saved_bytes(lambda: x @ w) == both
    assert count_saved_bytes(lambda: (x @ w).exp()) == both + 4 * 7 * 3
    assert count_saved_bytes(lambda: (x[:2] @ w).exp(), [x, w]) == 4 * 2 * 3
    assert count_saved_bytes(lambda: x * x) == 4 * 7 * 5
    assert count_saved_bytes(lambda: x + 1) == 0


def test_nothing_is_saved_without_gradients():
    x = make_meta_tensor(7, 5)
    assert count_saved_bytes(lambda: (x @ x.T).exp()) == 0
