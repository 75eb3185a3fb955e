"""Modern blocks and decoders: parts, cache, padding, causality, sizes.

tests/oracles/against_transformers.py compares the decoder with transformers.
"""

import pytest
import torch
import torch.nn.functional as F

from attnbook.decoding.generation import decode_greedily, sample
from attnbook.models.modern_decoder import (
    DecoderConfig,
    ModernAttention,
    ModernDecoder,
    ModernLanguageModel,
    RotaryAttention,
    SwiGLU,
)
from attnbook.models.transformer import RMSNorm
from perturbed import perturb

B, T, V, C, H, G, HIDDEN, BLOCKS = 2, 7, 23, 24, 6, 2, 13, 3


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def build(heads=H, groups=G, **more):
    config = DecoderConfig(V, C, heads, groups, HIDDEN, BLOCKS, **more)
    return perturb(ModernDecoder(config).double())


def draw_ids(*shape):
    rng = torch.Generator().manual_seed(5)
    return torch.randint(0, V, shape, generator=rng)


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: build(6, 1),
        lambda: build(6, 6),
        lambda: perturb(ModernLanguageModel(V, C, H, G, HIDDEN, BLOCKS).double()),
    ],
    ids=["one group", "six groups", "QK-norm"],
)
@pytest.mark.parametrize("cuts", [(1,) * T, (3, 4)], ids=str)
def test_the_cache_changes_no_logit(make, cuts):
    model, ids = make(), draw_ids(B, T)
    caches, parts = None, []
    for part in ids.split(cuts, dim=1):
        logits, caches = model.decode(part, caches)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids))
    assert len(caches) == BLOCKS
    assert caches[0][0].shape[2] == caches[0][1].shape[2] == T


def test_no_logit_and_no_gradient_depends_on_later_symbols():
    model, ids = build(), draw_ids(B, T)
    other = ids.clone()
    other[:, -1] = (ids[:, -1] + 1) % V
    torch.testing.assert_close(model(ids)[:, :-1], model(other)[:, :-1])
    assert not torch.allclose(model(ids)[:, -1], model(other)[:, -1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_logit_of_a_real_symbol(side):
    """Only distances count, so padding on the left moves nothing either."""
    model, ids = build(), draw_ids(1, T)
    padding = draw_ids(1, 4)
    pair = (padding, ids) if side == "left" else (ids, padding)
    real = torch.cat([torch.full_like(x, x is ids) for x in pair], dim=1) == 1
    logits = model(torch.cat(pair, dim=1), real[:, None, None])
    torch.testing.assert_close(logits[real][None], model(ids))


def test_a_mask_is_joined_with_the_causal_one_and_continues_with_a_cache():
    model, ids = build(), draw_ids(B, T)
    positions = torch.arange(T)
    window = positions[:, None] - positions < 3
    whole = model(ids, window)
    assert not torch.allclose(whole, model(ids))
    torch.testing.assert_close(whole[:, :3], model(ids)[:, :3])
    first, caches = model.decode(ids[:, :4], mask=window[:4, :4])
    rest, _ = model.decode(ids[:, 4:], caches, window[4:])
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole)


def test_a_symbol_that_can_attend_to_nothing_gives_no_nan():
    model, ids = build(), draw_ids(B, T)
    real = torch.ones(B, T, dtype=torch.bool)
    real[0] = False
    logits = model(ids, real[:, None, None])
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[1], model(ids)[1])


def test_every_weight_is_used_and_its_gradient_is_that_with_a_cache():
    model, ids = build(), draw_ids(B, T)
    upstream = torch.randn(B, T, V, dtype=torch.double)
    weights = [*model.parameters()]
    whole = torch.autograd.grad(model(ids), weights, upstream)
    first, caches = model.decode(ids[:, :4])
    rest, _ = model.decode(ids[:, 4:], caches)
    joined = torch.cat([first, rest], dim=1)
    for one, other in zip(
        whole, torch.autograd.grad(joined, weights, upstream), strict=True
    ):
        torch.testing.assert_close(one, other)
        assert one.any()


def test_greedy_decoding_is_greedy_sampling_without_a_cache():
    model, ids = build(), draw_ids(B, 3)
    found = decode_greedily(model, ids, 6)
    assert torch.equal(found, sample(model, ids, 6, temperature=0))
    assert torch.equal(decode_greedily(model, ids, 0), ids)


@pytest.mark.refusal
@pytest.mark.parametrize(("symbols", "count"), [(0, 2), (3, -1)])
def test_an_empty_beginning_or_negative_count_is_refused(symbols, count):
    with pytest.raises(ValueError, match=f"{symbols} symbols .* {count}"):
        decode_greedily(build(), draw_ids(B, symbols), count)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": 0}, "blocks must be at least 1, not 0"),
        ({"groups": 4}, "6 heads do not divide into 4 groups"),
        ({"heads": 8, "groups": 8}, "even width of at least 2, not 3"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    sizes = {"heads": 6, "groups": 2, "hidden": HIDDEN, "blocks": BLOCKS}
    with pytest.raises(ValueError, match=message):
        config = DecoderConfig(V, C, **sizes | change)
        ModernDecoder(config)(draw_ids(B, T))


PADDED = torch.tensor([[3, 4, 5, 6, 7, 8], [0, 0, 5, 6, 7, 8]])


def test_a_padded_batch_goes_on_as_its_sequences_do_alone():
    model, real = build(), (PADDED != 0)[:, None, None]
    alone = decode_greedily(model, PADDED[1:, 2:], 4)[0, 4:]
    found = decode_greedily(model, PADDED, 4, mask=real)[1, 6:]
    assert torch.equal(found, alone)
    found = decode_greedily(model, PADDED, 4, torch.ones_like(real))[1, 6:]
    assert not torch.equal(found, alone)


@pytest.mark.refusal
def test_a_mask_that_decoding_cannot_continue_is_refused():
    with pytest.raises(ValueError, match=r"must be \(2, 1, 1, 6\), but is \(2, 6\)"):
        decode_greedily(build(), PADDED, 4, mask=PADDED != 0)
    with pytest.raises(ValueError, match="padding at the beginning"):
        decode_greedily(build(), PADDED, 4, (PADDED != 0)[:, None, None].flip(-1))
