import pytest
import torch

from attnbook.budget import share_of_budget

TRUTH = torch.tensor([1.0, -4.0], dtype=torch.float64)
PLAIN = torch.tensor([1.0, -4.5])


def test_what_is_as_wrong_as_plain_uses_half_the_budget():
    share = share_of_budget(PLAIN, PLAIN, TRUTH)
    assert share == pytest.approx(0.5, abs=1e-6)


def test_what_is_right_uses_nothing_and_what_is_wrong_too_much():
    assert share_of_budget(TRUTH.float(), PLAIN, TRUTH) == 0
    assert share_of_budget(TRUTH.float() + 2, PLAIN, TRUTH) > 1


def test_one_rounding_is_allowed_even_if_plain_is_exact():
    exact = TRUTH.half()
    allowed = torch.finfo(torch.float16).eps * 4
    near = (TRUTH + torch.tensor([allowed, 0.0])).half()
    assert share_of_budget(near, exact, TRUTH) == pytest.approx(1)


def test_nan_never_passes():
    broken = torch.tensor([torch.nan, -4.0])
    assert not share_of_budget(broken, PLAIN, TRUTH) <= 1


def test_zeros_must_be_zeros():
    nought = torch.zeros(2, dtype=torch.float64)
    assert share_of_budget(nought, nought, nought) == 0
    assert share_of_budget(nought + 1e-9, nought, nought) > 1


@pytest.mark.refusal
def test_unlike_tensors_are_refused():
    with pytest.raises(ValueError, match=r"ours \(1,\), plain \(2,\)"):
        share_of_budget(PLAIN[:1], PLAIN, TRUTH)
    with pytest.raises(ValueError, match=r"torch.float32 but plain.*float16"):
        share_of_budget(PLAIN, PLAIN.half(), TRUTH)
