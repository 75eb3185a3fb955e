import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.models.lookup_model import draw_lookup
from attnbook.records import read_record
from workshop.experiments.scaling import (
    VARIANTS,
    build_model,
    compute_factor,
    compute_loss_and_weights,
    measure_gradients,
)


@pytest.mark.parametrize("variant", VARIANTS[:2])
@pytest.mark.parametrize("width", [4, 64])
def test_the_recorded_gradients_are_reproduced(variant, width):
    stored = read_record("scaling_gradients")["results"][f"{variant} {width}"]
    again = measure_gradients(width, compute_factor(variant, width), 0)
    assert again.keys() == stored.keys()
    for what, value in again.items():
        assert value == pytest.approx(stored[what][0], rel=1e-3), what


def test_the_gradient_is_that_of_the_loss_it_names():
    width, scale = 4, 0.5
    rng = torch.Generator().manual_seed(width)
    query, key, value = (
        torch.randn(256, n, m, generator=rng)
        for n, m in ((1, width), (64, width), (64, 16))
    )
    query.requires_grad_()
    output = attend(query, key, value, scale=scale)
    loss = (output - value[:, :1]).square().sum() / 2
    (on_query,) = torch.autograd.grad(loss, query)
    found = measure_gradients(width, scale, 0)["query"]
    assert found == pytest.approx(float(on_query.norm(dim=-1).mean()), rel=1e-4)


def test_smaller_initial_weights_equal_the_scaling_at_initialisation():
    task = draw_lookup(3, 5, 32, 2, torch.Generator().manual_seed(0))
    found = {}
    for variant in VARIANTS:
        torch.manual_seed(0)
        found[variant] = compute_loss_and_weights(build_model(variant, 16), task)[2]
    torch.testing.assert_close(found["shrunk"], found["scaled"])
    assert not torch.allclose(found["plain"], found["scaled"], atol=0.1)
