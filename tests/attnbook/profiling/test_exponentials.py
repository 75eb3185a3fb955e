import pytest

from attnbook.profiling.roofline import (
    DEVICES,
    EXPONENTIAL_RATES,
    Machine,
    bound_seconds_by_ceiling,
)
from attnbook.profiling.sizes import Sizes

H100 = DEVICES["H100 SXM"].machine(2)


def test_each_ceiling_is_counted_by_hand():
    sizes = Sizes(2, 3, 5, 7, 11, itemsize=2)
    found = bound_seconds_by_ceiling(Machine(100.0, 10.0), 1.0, sizes)
    pairs = 2 * 3 * 5 * 7
    moved = 2 * (2 * 2 * 3 * 5 * 11 + 2 * 2 * 3 * 7 * 11)
    assert found == {
        "memory": moved / 10,
        "products": 4 * pairs * 11 / 100,
        "exponentials": pairs,
    }


def test_values_of_another_width_count_in_the_products():
    one = bound_seconds_by_ceiling(H100, 1.0, Sizes(1, 1, 5, 7, 11, 11))
    other = bound_seconds_by_ceiling(H100, 1.0, Sizes(1, 1, 5, 7, 11, 33))
    assert other["products"] == pytest.approx(2 * one["products"])
    assert other["exponentials"] == one["exponentials"]


def test_on_an_h100_exponentials_and_products_take_equally_long_at_width_64():
    """Shah et al. (2024), section 3.1: half as long at width 128."""
    rate = EXPONENTIAL_RATES["H100 SXM"]
    for D, share in (64, 1.0), (128, 0.5):
        sizes = Sizes(1, 16, 4096, 4096, D, itemsize=2)
        found = bound_seconds_by_ceiling(H100, rate, sizes)
        ratio = found["exponentials"] / found["products"]
        assert ratio == pytest.approx(share, rel=0.01)
    assert {*EXPONENTIAL_RATES} <= {*DEVICES}


@pytest.mark.refusal
def test_a_rate_of_zero_is_refused():
    with pytest.raises(ValueError, match="computes 0 exponentials a second"):
        bound_seconds_by_ceiling(H100, 0, Sizes(1, 1, 1, 1, 1))
