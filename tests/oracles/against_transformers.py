"""Our decoder equals transformers' Llama, forwards and backwards.

Single precision: transformers computes norms and angles in it whatever the
precision of its weights. "Equal" means that the largest difference is below
10⁻⁵ of the largest number.
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from attnbook.flash import hugging_face
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.pretrained import (
    convert_llama_weights,
    read_llama_config,
)
from precision import measure_difference

B, V, BLOCKS, LIMIT = 2, 37, 3, 1e-5
# Heads, groups, width of a head, T.
SIZES = [(1, 1, 2, 1), (4, 1, 6, 7), (6, 2, 4, 13), (6, 3, 10, 5), (5, 5, 8, 9)]
ROTARY = [(10000.0, 1e-5), (50.0, 1e-2)]
CASES = [(size, rotary) for size in SIZES for rotary in ROTARY]
each_case = pytest.mark.parametrize(("size", "rotary"), CASES, ids=str)


def build(size, rotary, attention="sdpa"):
    """Return transformers' model with uneven weights, and ours with them."""
    heads, groups, width, _ = size
    base, eps = rotary
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=heads * width,
        intermediate_size=29,
        num_hidden_layers=BLOCKS,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=width,
        rms_norm_eps=eps,
        rope_parameters={"rope_theta": base, "rope_type": "default"},
        tie_word_embeddings=True,
        attn_implementation=attention,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(heads * width)
        theirs = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for p in theirs.parameters():
                p.add_(0.2 * torch.randn_like(p))
    sizes = read_llama_config(config.to_dict())
    return theirs, copy_weights(theirs, sizes)


def copy_weights(theirs, sizes):
    ours = ModernDecoder(sizes)
    ours.load_state_dict(convert_llama_weights(theirs.state_dict(), sizes))
    return ours.eval()


def draw_ids(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(0, V, shape, generator=rng)


@each_case
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_logits_are_equal(size, rotary, attention):
    theirs, ours = build(size, rotary, attention)
    ids = draw_ids(B, size[-1])
    assert measure_difference(ours(ids), theirs(ids).logits) < LIMIT


@each_case
def test_the_gradients_of_all_weights_are_equal(size, rotary):
    theirs, ours = build(size, rotary)
    ids = draw_ids(B, size[-1])
    rng = torch.Generator().manual_seed(1)
    upstream = torch.randn(B, size[-1], V, generator=rng)
    ours(ids).backward(upstream)
    theirs(ids).logits.backward(upstream)
    wanted = convert_llama_weights(
        {n: p.grad for n, p in theirs.named_parameters()}, ours.config
    )
    found = {name: p.grad for name, p in ours.named_parameters()}
    assert found.keys() == wanted.keys()
    for name, grad in found.items():
        assert measure_difference(grad, wanted[name]) < LIMIT, name


@each_case
@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_and_gradients_are_equal_with_padding(size, rotary, side):
    theirs, ours = build(size, rotary)
    T = size[-1] + 3
    lengths = torch.tensor([T, size[-1]])[:, None]
    real = torch.arange(T) < lengths
    real = real.flip(1) if side == "left" else real
    ids = draw_ids(B, T)
    rng = torch.Generator().manual_seed(1)
    upstream = torch.randn(B, T, V, generator=rng) * real[..., None]
    logits = ours(ids, real[:, None, None])
    expected = theirs(ids, attention_mask=real.long()).logits
    assert measure_difference(logits[real], expected[real]) < LIMIT
    logits.backward(upstream)
    expected.backward(upstream)
    table = theirs.model.embed_tokens.weight.grad
    assert measure_difference(ours.embed.table.weight.grad, table) < LIMIT


@each_case
@pytest.mark.parametrize("first", [1, 4])
def test_decoding_with_a_cache_is_equal(size, rotary, first):
    theirs, ours = build(size, rotary)
    ids = draw_ids(B, size[-1] + first + 1)
    caches = past = None
    for part in ids.split([first, 1, size[-1]], dim=1):
        logits, caches = ours.decode(part, caches)
        with torch.no_grad():
            expected = theirs(part, past_key_values=past, use_cache=True)
        past = expected.past_key_values
        assert measure_difference(logits, expected.logits) < LIMIT
    value = past.layers[-1].values
    assert measure_difference(caches[-1][1], value) < LIMIT


@pytest.mark.parametrize("padded", [False, True])
def test_their_model_computes_the_same_with_our_attention(padded):
    """The adapter of `attnbook.flash.hugging_face`, forwards, backwards, cached."""
    hugging_face.register()
    size, rotary = (6, 2, 4, 13), (10000.0, 1e-5)
    models = [build(size, rotary, name)[0] for name in ("sdpa", "attnbook")]
    ids = draw_ids(B, 13)
    real = torch.arange(13) < torch.tensor([[13], [9]])
    given = {"attention_mask": real.long()} if padded else {}
    logits = [model(ids, **given).logits[real] for model in models]
    assert measure_difference(logits[1], logits[0]) < LIMIT
    for x in logits:
        x.square().sum().backward()
    tables = [model.model.embed_tokens.weight.grad for model in models]
    assert measure_difference(tables[1], tables[0]) < LIMIT
    found, expected = (
        model.generate(ids[:1], max_new_tokens=9, do_sample=False, eos_token_id=None)
        for model in models
    )
    assert torch.equal(found, expected)
