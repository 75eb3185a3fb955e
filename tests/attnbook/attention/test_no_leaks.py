"""No layer or decoder knows its future, and padding changes none of them."""

import pytest
import torch

from attnbook import masks
from attnbook.attention.multi_head import GroupedQueryAttention
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


def test_a_layer_with_a_mask_reads_no_future_and_no_padding():
    layer = build(lambda: GroupedQueryAttention(C, 3, 1)).eval()

    def causal(x):
        n = x.shape[1]
        return layer(x, None, masks.window(n, n, 2) | masks.sinks(n, n, 1))

    def padded(x, lengths):
        n = x.shape[1]
        return layer(x, None, masks.padding(lengths, n) & masks.causal(n, n))

    assert measure_leak(causal, X).max() < ROUNDING
    assert measure_prefix_effect(causal, X).max() < ROUNDING
    assert_reads_no_padding(padded, X)


@pytest.mark.parametrize("directions", [1, 2])
def test_an_encoder_does_not_read_padding(directions):
    encoder = build(lambda: Encoder(V, 3, 5, directions))

    def read(source, lengths):
        memory = encoder(source, lengths)
        last = memory.last[:, None].expand(-1, source.shape[1], -1)
        return torch.cat([memory.states, last], dim=-1)

    assert_reads_no_padding(read, SOURCE)
