import math

import pytest
import torch

from attnbook.attention.multi_head import (
    GatedCrossAttention,
    gated_cross_attention,
)
from attnbook.attention.scaled_dot_product import attend

RNG = torch.Generator().manual_seed(0)
TEXT = torch.randn(2, 3, 8, generator=RNG)
IMAGE = torch.randn(2, 5, 7, generator=RNG)
QUERY, KEY, VALUE = (
    torch.randn(*shape, generator=RNG) for shape in ((4, 8), (4, 7), (8, 7))
)


def test_a_gate_of_0_changes_no_bit():
    found = gated_cross_attention(TEXT, IMAGE, QUERY, KEY, VALUE, torch.tensor(0.0))
    assert torch.equal(found, TEXT)
    layer = GatedCrossAttention(8, 2, 7)
    assert torch.equal(layer(TEXT, IMAGE)[0], TEXT)


def test_tanh_of_the_gate_weighs_the_attention():
    gate = torch.tensor(0.3)
    found = gated_cross_attention(TEXT, IMAGE, QUERY, KEY, VALUE, gate)
    attended = attend(TEXT @ QUERY.T, IMAGE @ KEY.T, IMAGE @ VALUE.T)
    torch.testing.assert_close(found, TEXT + math.tanh(0.3) * attended)


def test_the_layer_is_the_function_with_a_norm_and_two_projections():
    layer = GatedCrossAttention(8, 1, 7).double()
    text, image = TEXT.double(), IMAGE.double()
    with torch.no_grad():
        layer.gate.fill_(-0.7)
        for part in layer.attention.children():
            if hasattr(part, "bias"):
                part.bias.zero_()
        found, weights = layer(text, image)
        parts = layer.attention
        expected = gated_cross_attention(
            layer.norm(text),
            image,
            parts.query.weight,
            parts.key.weight,
            parts.output.weight @ parts.value.weight,
            layer.gate,
        )
    torch.testing.assert_close(found - text, expected - layer.norm(text))
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_at_gate_0_only_the_gate_receives_a_gradient():
    layer = GatedCrossAttention(8, 2, 7)
    layer(TEXT, IMAGE)[0].square().sum().backward()
    assert layer.gate.grad.abs() > 0
    assert all(
        not part.grad.any() for name, part in layer.named_parameters() if name != "gate"
    )


@pytest.mark.refusal
def test_values_of_another_width_than_the_text_are_refused():
    with pytest.raises(ValueError, match=r"width 6 cannot be added to text of width 8"):
        gated_cross_attention(TEXT, IMAGE, QUERY, KEY, VALUE[:6], torch.tensor(0.0))


@pytest.mark.refusal
def test_a_projection_that_does_not_fit_the_image_is_refused():
    with pytest.raises(ValueError, match="W_key takes width 6 but gets 7"):
        gated_cross_attention(TEXT, IMAGE, QUERY, KEY[:, :6], VALUE, torch.tensor(0.0))
