"""A modern decoder block, its parts and its cache."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.masks import causal
from attnbook.models.modern_decoder import (
    ModernAttention,
    ModernBlock,
    ModernLanguageModel,
    RotaryAttention,
    SwiGLU,
)
from attnbook.models.recurrent import count_parameters
from attnbook.models.transformer import RMSNorm
from perturbed import perturb

B, T, C, H, G, HIDDEN = 2, 5, 24, 6, 2, 13


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def test_rms_norm_is_pytorchs_and_ignores_the_scale():
    norm, x = perturb(RMSNorm(C)), torch.randn(B, T, C)
    expected = F.rms_norm(x, (C,), norm.weight, norm.eps)
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(norm(100 * x), norm(x), atol=1e-3, rtol=1e-3)
    assert norm(torch.zeros(1, C)).isfinite().all()


def test_swiglu_is_its_formula():
    network, x = perturb(SwiGLU(C, HIDDEN)), torch.randn(B, T, C)
    gate = x @ network.gate.weight.T
    hidden = gate * gate.sigmoid() * (x @ network.up.weight.T)
    torch.testing.assert_close(network(x), hidden @ network.down.weight.T)
    assert count_parameters(network) == 3 * C * HIDDEN
    biased = SwiGLU(C, HIDDEN, bias=True)
    assert count_parameters(biased) == 3 * C * HIDDEN + 2 * HIDDEN + C


def test_scores_depend_on_distances_only():
    attention, x = RotaryAttention(C, H, G), torch.randn(1, T, C)
    here = attention.scores(*attention.project(x, x)[:2])
    there = attention.scores(*attention.project(x, x, start=100)[:2])
    torch.testing.assert_close(here, there, atol=1e-3, rtol=1e-3)


def test_qk_norm_removes_the_scale_of_queries_and_keys():
    attention, x = ModernAttention(C, H, G), torch.randn(B, T, C)
    before = attention.scores(*attention.project(x, x)[:2])
    with torch.no_grad():
        attention.query.weight.mul_(100)
        attention.key.weight.mul_(100)
    after = attention.scores(*attention.project(x, x)[:2])
    torch.testing.assert_close(after, before, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("build", [RotaryAttention, ModernAttention])
def test_decoding_is_the_forward_pass_with_a_causal_mask(build):
    attention, x = perturb(build(C, H, G)), torch.randn(B, T, C)
    output, (key, value) = attention.decode(x)
    torch.testing.assert_close(output, attention(x, mask=causal(T, T)))
    assert key.shape == value.shape == (B, G, T, C // H)


@pytest.mark.parametrize("cuts", [(1, 1, 1, 1, 1), (3, 2), (2, 1, 2)])
def test_the_cache_changes_no_number(cuts):
    block, x = perturb(ModernBlock(C, H, G, HIDDEN)), torch.randn(B, T, C)
    whole, kept = block(x)
    cache, parts = None, []
    for part in x.split(cuts, dim=1):
        output, cache = block(part, cache)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-4)
    for one, other in zip(cache, kept, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_model_decodes_as_it_reads():
    model = perturb(ModernLanguageModel(19, C, H, G, HIDDEN, 3))
    ids = torch.randint(4, 19, (B, T))
    logits, caches = model.decode(ids[:, :3])
    more, caches = model.decode(ids[:, 3:], caches)
    torch.testing.assert_close(
        torch.cat([logits, more], dim=1), model(ids), atol=1e-4, rtol=1e-4
    )
    assert len(caches) == 3
