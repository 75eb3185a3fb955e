import pytest
import torch

from attnbook.allocations import kept, peak
from attnbook.cost.traced import meta


def test_the_peak_counts_what_is_held_at_once():
    def call():
        a = torch.ones(1000)
        b = a + 1
        del a
        return b, torch.ones(500)

    assert peak(call) == pytest.approx(2 * 4000, rel=0.01)
    assert peak(lambda: torch.ones(1000)) == pytest.approx(4000, rel=0.01)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_kept_is_counted_once_with_all_behind_it(device):
    x = torch.empty(7, 5, device=device, requires_grad=True)
    w = torch.empty(5, 3, device=device, requires_grad=True)
    both = 4 * (7 * 5 + 5 * 3)
    assert kept(lambda: x @ w) == both
    assert kept(lambda: (x @ w).exp()) == both + 4 * 7 * 3
    assert kept(lambda: (x[:2] @ w).exp(), [x, w]) == 4 * 2 * 3
    assert kept(lambda: x * x) == 4 * 7 * 5
    assert kept(lambda: x + 1) == 0


def test_without_gradients_nothing_is_kept():
    x = meta(7, 5)
    assert kept(lambda: (x @ x.T).exp()) == 0
