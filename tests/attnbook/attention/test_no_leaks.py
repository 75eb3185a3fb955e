"""No model of the book knows its future, and padding changes none of them.

Every model is one line in one of the dictionaries; a new one is a new line.
Models that leak, or read padding, stand beside them: the measures find each.
"""

import pytest
import torch
from torch import nn

from attnbook import masks
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.multi_head import GroupedQueryAttention, MultiHeadAttention
from attnbook.attention.recurrent import DotScore, GlobalAttention
from attnbook.attention.self_attention import causal_self_attention, self_attention
from attnbook.diagnose import (
    measure_batch_effect,
    measure_leak,
    measure_longer_padding,
    measure_padding_effect,
    measure_prefix_effect,
)
from attnbook.models.recurrent import Encoder, Memory
from leak_cases import DECODERS, LENGTHS, PREVIOUS, SOURCE, C, V, X, build_luong

ROUNDING = 1e-5


def made(models, name):
    """Return a model with the same parameters whenever it is asked for."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return models[name]()


class Said(nn.Module):
    """What a decoder says to what was said before; the source stays."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, previous):
        return self.model(SOURCE, LENGTHS, previous).logits


def beside(model):
    """All that a decoder says, beside each word of the source."""

    def message(source, lengths):
        logits = model(source, lengths, PREVIOUS).logits.flatten(1)
        return logits[:, None].expand(-1, source.shape[1], -1)

    return message


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_reads_no_later_symbol_no_padding_and_no_other_sequence(name):
    model = made(DECODERS, name)
    message = Said(model)
    assert measure_leak(message, PREVIOUS).max() < ROUNDING
    assert measure_prefix_effect(message, PREVIOUS).max() < ROUNDING
    message = beside(model)
    assert measure_padding_effect(message, SOURCE, LENGTHS).max() < ROUNDING
    assert measure_longer_padding(message, SOURCE, LENGTHS).max() < ROUNDING

    both = torch.cat([SOURCE[:, :3], PREVIOUS], dim=1)
    three = torch.tensor([3, 3])

    def message(both):
        logits = model(both[:, :3], three, both[:, 3:]).logits.flatten(1)
        return logits[:, None].expand(-1, both.shape[1], -1)

    assert measure_batch_effect(message, both).max() < ROUNDING


def heads(x):
    return x.unflatten(-1, (3, -1)).transpose(1, 2)


def of_heads(function):
    """Return attention of the inputs to themselves, cut into three heads."""
    return lambda: (
        lambda x, mask: function(*[heads(x)] * 3, mask).transpose(1, 2).flatten(2)
    )


def projected(function):
    """Return a self-attention with its projections."""

    def make():
        matrices = [torch.randn(C, C) * C**-0.5 for _ in range(3)]
        return lambda x, mask: function(x, *matrices, mask)

    return make


def layer(module, *more):
    def make():
        attention = module(C, 3, *more).eval()
        return lambda x, mask: attention(x, None, mask)

    return make


# With a mask (B, 1, T, S) or (T, S); those without heads get it without H.
LAYERS = {
    "self_attention": projected(
        lambda x, Q, K, V, mask: self_attention(
            x, Q, K, V, mask[:, 0] if mask.ndim == 4 else mask
        )
    ),
    "MultiHeadAttention": layer(MultiHeadAttention),
    "GroupedQueryAttention": layer(GroupedQueryAttention, 1),
    "attend_in_blocks": of_heads(
        lambda q, k, v, mask: attend_in_blocks(q, k, v, mask, rows=2)
    ),
}
CAUSAL = {
    "causal": lambda n: masks.causal(n, n),
    "window": lambda n: masks.window(n, n, 3),
    "dilated": lambda n: masks.dilated(n, n, 3, step=2),
    "sinks": lambda n: masks.window(n, n, 2) | masks.sinks(n, n, 1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_a_causal_mask_does_not_leak(name):
    attention = made(LAYERS, name)
    for kind, make in CAUSAL.items():

        def model(x, make=make):
            return attention(x, make(x.shape[1]))

        assert measure_leak(model, X).max() < ROUNDING, kind
        assert measure_prefix_effect(model, X).max() < ROUNDING, kind
        assert measure_batch_effect(model, X).max() < ROUNDING, kind


def test_attention_that_makes_its_own_mask_does_not_leak():
    windowed = of_heads(lambda q, k, v, _: attend_window(q, k, v, 3, rows=2))()
    causal = projected(lambda x, Q, K, V, _: causal_self_attention(x, Q, K, V))
    for attention in windowed, causal():
        assert measure_leak(lambda x, f=attention: f(x, None), X).max() < ROUNDING
        assert measure_prefix_effect(lambda x, f=attention: f(x, None), X).max() < (
            ROUNDING
        )


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_a_padding_mask_does_not_read_padding(name):
    attention = made(LAYERS, name)
    for causal in False, True:

        def model(x, lengths, causal=causal):
            n = x.shape[1]
            mask = masks.padding(lengths, n).expand(-1, 1, n, -1)
            return attention(x, mask & masks.causal(n, n) if causal else mask)

        assert measure_padding_effect(model, X, LENGTHS).max() < ROUNDING, causal
        assert measure_longer_padding(model, X, LENGTHS).max() < ROUNDING, causal


def test_an_encoder_does_not_read_padding():
    for directions in 1, 2:
        encoder = made({"": lambda n=directions: Encoder(V, 3, 5, n)}, "")

        def read(source, lengths, encoder=encoder):
            memory = encoder(source, lengths)
            last = memory.last[:, None].expand(-1, source.shape[1], -1)
            return torch.cat([memory.states, last], dim=-1)

        assert measure_padding_effect(read, SOURCE, LENGTHS).max() < ROUNDING
        assert measure_longer_padding(read, SOURCE, LENGTHS).max() < ROUNDING


# What leaks, and what reads padding: the same tests have to find it.


class ReadsBackwards(nn.Module):
    """A language model made of a recurrent network in both directions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, 3)
        self.recurrent = nn.GRU(3, V, bidirectional=True, batch_first=True)

    def forward(self, tokens):
        return self.recurrent(self.embed(tokens))[0]


class PaddingForgotten(GlobalAttention):
    """An attention that takes every sentence for as long as the longest."""

    def forward(self, query, keys, value, lengths, step=0):
        everything = torch.full_like(lengths, value.shape[1])
        return super().forward(query, keys, value, everything, step)


class Unpacked(Encoder):
    """An encoder that reads on into the padding."""

    def forward(self, source, lengths):
        whole = torch.full_like(lengths, source.shape[1])
        memory = super().forward(source, whole)
        return Memory(memory.states, memory.last, lengths)


LEAKS = {
    "no mask": lambda n: masks.causal(n, n) | True,
    "upside down": lambda n: ~masks.causal(n, n) | torch.eye(n).bool(),
    "the next one too": lambda n: torch.ones(n, n).tril(1).bool(),
    "a prefix that all may see": lambda n: masks.prefix(n, n, 3),
}


@pytest.mark.parametrize("kind", LEAKS)
def test_a_mask_that_leaks_is_found(kind):
    attention = made(LAYERS, "MultiHeadAttention")
    found = measure_leak(lambda x: attention(x, LEAKS[kind](x.shape[1])), X)
    assert found.max() > 100 * ROUNDING


def test_a_model_that_reads_backwards_is_found():
    model = made({"": ReadsBackwards}, "").eval()
    assert measure_leak(model, PREVIOUS)[:-1].min() > 100 * ROUNDING
    assert measure_prefix_effect(model, PREVIOUS)[:-1].min() > 100 * ROUNDING


def test_a_padding_mask_on_the_wrong_axis_is_found():
    attention = made(LAYERS, "MultiHeadAttention")

    def model(x, lengths):
        n = x.shape[1]
        return attention(x, masks.padding(lengths, n).mT.expand(-1, 1, -1, n))

    assert measure_padding_effect(model, X, LENGTHS)[1] > 100 * ROUNDING


def test_a_decoder_that_reads_padding_is_found():
    forgetful = {"": lambda: build_luong(PaddingForgotten(DotScore(C, C)))}
    message = beside(made(forgetful, ""))
    # The states of padding are 0 whatever stands there; their number counts.
    assert measure_padding_effect(message, SOURCE, LENGTHS)[1] < ROUNDING
    assert measure_longer_padding(message, SOURCE, LENGTHS)[1] > 100 * ROUNDING


def test_an_encoder_that_reads_padding_is_found():
    encoder = made({"": lambda: Unpacked(V, 3, 5)}, "")

    def read(source, lengths):
        return encoder(source, lengths).states

    assert measure_padding_effect(read, SOURCE, LENGTHS)[1] > 100 * ROUNDING
