"""Layers that read the positions before them in different ways."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.attention.scaled_dot_product import attend
from attnbook.masks import causal, window
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import count_parameters
from workshop.experiments.sequence_mixers import (
    KERNEL,
    MIXERS,
    WINDOW,
    MixerModel,
    SoftmaxMixer,
    WindowMixer,
    convolve_causally,
)

B, T, C, H, V = 2, 71, 24, 3, 11
each_method = pytest.mark.parametrize("method", MIXERS)


def build(method, **more):
    with use_seed(3):
        return MixerModel(V, method, **{"width": C, "heads": H} | more)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def draw_ids():
    rng = torch.Generator().manual_seed(1)
    return torch.randint(V, (B, T), generator=rng)


def test_the_short_convolution_is_pytorchs_and_starts_with_zeros():
    x, weight = draw(B, 7, C), draw(KERNEL, C, seed=1)
    padded = F.pad(x.mT, (KERNEL - 1, 0))
    expected = F.conv1d(padded, weight.flip(0).T[:, None], groups=C).mT
    torch.testing.assert_close(convolve_causally(x, weight), expected)
    torch.testing.assert_close(
        convolve_causally(x[:, :1], weight), x[:, :1] * weight[0]
    )


@each_method
def test_no_method_reads_later_positions(method):
    model, ids = build(method), draw_ids()
    other = ids.clone()
    other[:, 40:] = (other[:, 40:] + 1) % V
    before, after = model(ids), model(other)
    torch.testing.assert_close(before[:, :40], after[:, :40])
    assert not torch.allclose(before[:, 40:], after[:, 40:], atol=1e-3)


@each_method
def test_only_windows_forget_what_is_far_away(method):
    model, ids = build(method, blocks=1), draw_ids()
    other = ids.clone()
    other[:, 2] = (other[:, 2] + 1) % V
    last = WINDOW + KERNEL + 2  # beyond the window and the convolution
    difference = (model(ids) - model(other))[:, last:].abs().max()
    assert (difference == 0) == method.startswith("window")


def test_all_methods_have_equally_many_parameters():
    counts = [count_parameters(MixerModel(V, x, 48, 3, 128)) for x in MIXERS]
    assert max(counts) - min(counts) <= 2 * (2 * 48 + 1)


@each_method
def test_every_parameter_has_a_gradient(method):
    model = build(method)
    model(draw_ids()).square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.abs().max() > 0, name


def read_heads(mixer):
    x = draw(B, T, C)
    return x, mixer.project(x)


def test_softmax_mixers_are_attention_with_their_masks():
    with use_seed(0):
        full, near = SoftmaxMixer(C, H), WindowMixer(C, H, 5)
    x, qkv = read_heads(full)
    for mixer, mask in ((full, causal(T, T)), (near, window(T, T, 5))):
        torch.testing.assert_close(mixer.mix(*qkv, x), attend(*qkv, mask))


def test_a_gated_memory_that_keeps_everything_is_the_delta_rule():
    with use_seed(0):
        gated = MIXERS["gated delta"](C, H)
        plain = MIXERS["delta"](C, H)
    plain.load_state_dict(
        {k: v for k, v in gated.state_dict().items() if "decay" not in k}
    )
    x = draw(B, T, C)
    assert not torch.allclose(gated(x), plain(x), atol=1e-4)
    with torch.no_grad():
        gated.decay.weight.zero_()
        gated.decay.bias.fill_(40.0)
    torch.testing.assert_close(gated(x), plain(x), atol=1e-5, rtol=1e-4)


@pytest.mark.refusal
def test_unknown_methods_are_refused():
    with pytest.raises(ValueError, match="not 'lienar'"):
        MixerModel(V, "lienar")
