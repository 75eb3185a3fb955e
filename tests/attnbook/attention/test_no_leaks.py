"""No layer or decoder knows its future, and padding changes none of them.

Every model is one line in one of the dictionaries.
"""

import pytest
import torch

from attnbook import masks
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.multi_head import GroupedQueryAttention, MultiHeadAttention
from attnbook.attention.self_attention import causal_self_attention, self_attention
from attnbook.diagnose import (
    measure_batch_effect,
    measure_leak,
    measure_longer_padding,
    measure_padding_effect,
    measure_prefix_effect,
)
from attnbook.models.recurrent import Encoder
from leak_cases import DECODERS, LENGTHS, PREVIOUS, SOURCE, C, V, X

ROUNDING = 1e-5


def build(make):
    """Return a model with the same parameters whenever it is asked for."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return make()


def assert_reads_no_future(model, inputs):
    assert measure_leak(model, inputs).max() < ROUNDING
    assert measure_prefix_effect(model, inputs).max() < ROUNDING
    assert measure_batch_effect(model, inputs).max() < ROUNDING


def assert_reads_no_padding(model, inputs):
    assert measure_padding_effect(model, inputs, LENGTHS).max() < ROUNDING
    assert measure_longer_padding(model, inputs, LENGTHS).max() < ROUNDING


def beside(model):
    """All that a decoder says, beside each word of the source."""

    def message(source, lengths):
        logits = model(source, lengths, PREVIOUS).logits.flatten(1)
        return logits[:, None].expand(-1, source.shape[1], -1)

    return message


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_reads_no_later_symbol_no_padding_and_no_other_sequence(name):
    model = build(DECODERS[name])

    def message(previous):
        return model(SOURCE, LENGTHS, previous).logits

    assert measure_leak(message, PREVIOUS).max() < ROUNDING
    assert measure_prefix_effect(message, PREVIOUS).max() < ROUNDING
    assert_reads_no_padding(beside(model), SOURCE)

    def message_of_both(both):
        logits = model(both[:, :3], torch.tensor([3, 3]), both[:, 3:]).logits
        return logits.flatten(1)[:, None].expand(-1, both.shape[1], -1)

    both = torch.cat([SOURCE[:, :3], PREVIOUS], dim=1)
    assert measure_batch_effect(message_of_both, both).max() < ROUNDING


def over_heads(function):
    """Return attention of the inputs to themselves, cut into three heads."""

    def call(x, mask=None):
        heads = x.unflatten(-1, (3, -1)).transpose(1, 2)
        return function(heads, heads, heads, mask).transpose(1, 2).flatten(2)

    return call


def project(function):
    """Return a self-attention with its projections."""
    matrices = [torch.randn(C, C) * C**-0.5 for _ in range(3)]
    return lambda x, mask=None: function(x, *matrices, mask)


def layer(module, *more):
    attention = module(C, 3, *more).eval()
    return lambda x, mask: attention(x, None, mask)


# With a mask (B, 1, T, S) or (T, S); those without heads get it without H.
LAYERS = {
    "self_attention": lambda: project(
        lambda x, Q, K, V, mask: self_attention(
            x, Q, K, V, mask[:, 0] if mask.ndim == 4 else mask
        )
    ),
    "MultiHeadAttention": lambda: layer(MultiHeadAttention),
    "GroupedQueryAttention": lambda: layer(GroupedQueryAttention, 1),
    "attend_in_blocks": lambda: over_heads(
        lambda q, k, v, mask: attend_in_blocks(q, k, v, mask, rows=2)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_a_mask_reads_no_future_and_no_padding(name):
    attention = build(LAYERS[name])

    def causal(x):
        n = x.shape[1]
        return attention(x, masks.window(n, n, 2) | masks.sinks(n, n, 1))

    def padded(x, lengths):
        n = x.shape[1]
        return attention(x, masks.padding(lengths, n) & masks.causal(n, n))

    assert_reads_no_future(causal, X)
    assert_reads_no_padding(padded, X)


def test_attention_that_makes_its_own_mask_does_not_leak():
    windowed = over_heads(lambda q, k, v, _: attend_window(q, k, v, 3, rows=2))
    causal = project(lambda x, Q, K, V, _: causal_self_attention(x, Q, K, V))
    for attention in windowed, causal:
        assert_reads_no_future(attention, X)


@pytest.mark.parametrize("directions", [1, 2])
def test_an_encoder_does_not_read_padding(directions):
    encoder = build(lambda: Encoder(V, 3, 5, directions))

    def read(source, lengths):
        memory = encoder(source, lengths)
        last = memory.last[:, None].expand(-1, source.shape[1], -1)
        return torch.cat([memory.states, last], dim=-1)

    assert_reads_no_padding(read, SOURCE)
