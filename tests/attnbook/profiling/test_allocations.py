import pytest
import torch

from attnbook.profiling.allocations import count_saved_bytes, measure_peak_bytes
from attnbook.profiling.tracing import make_meta_tensor


def test_the_peak_counts_simultaneous_tensors():
    def call():
        a = torch.ones(1000)
        b = a + 1
        del a
        return b, torch.ones(500)

    assert measure_peak_bytes(call) == pytest.approx(2 * 4000, rel=0.01)
    assert measure_peak_bytes(lambda: torch.ones(1000)) == pytest.approx(
        4000, rel=0.01
    )


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
