import pytest
import torch

from attnbook.attention.scaled_dot_product import nadaraya_watson

T, S, D, E = 3, 5, 2, 7


def draw(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize(("width", "origin"), [(0.3, 0.0), (4.0, 50.0)])
def test_smoothing_is_the_distance_weighted_average(width, origin):
    query, key, value = draw(T, D) + origin, draw(S, D) + origin, draw(S, E)
    bell = torch.exp(-torch.cdist(query, key).square() / (2 * width**2))
    wanted = bell @ value / bell.sum(-1, keepdim=True)
    torch.testing.assert_close(nadaraya_watson(query, key, value, width), wanted)


def test_a_small_width_gives_the_nearest_value_a_large_one_the_mean():
    query, key, value = draw(T, D), draw(S, D), draw(S, E)
    nearest = value[torch.cdist(query, key).argmin(-1)]
    torch.testing.assert_close(nadaraya_watson(query, key, value, 0.01), nearest)
    mean = value.mean(0).expand(T, E)
    wide = nadaraya_watson(query, key, value, 1e4)
    torch.testing.assert_close(wide, mean, atol=1e-6, rtol=0)


def test_masked_out_keys_have_no_effect():
    key, value = draw(S, D), draw(S, E)
    others = ~torch.eye(S, dtype=torch.bool)
    left = nadaraya_watson(key, key, value, 1.0, others)
    value = value.clone()
    value[2] += 100
    assert torch.equal(left[2], nadaraya_watson(key, key, value, 1.0, others)[2])
    assert not torch.equal(left[1], nadaraya_watson(key, key, value, 1.0, others)[1])


@pytest.mark.refusal
@pytest.mark.parametrize("width", [0.0, -1.0, float("nan")])
def test_a_width_that_is_not_positive_is_refused(width):
    with pytest.raises(ValueError, match=f"width is {width}"):
        nadaraya_watson(draw(T, D), draw(S, D), draw(S, E), width)
