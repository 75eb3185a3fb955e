"""Maps of a Transformer: what was used, and nothing changed by watching."""

import pytest
import torch

from attnbook.data.vocabulary import PAD
from attnbook.models.hooks import collect_maps
from attnbook.models.recurrent import EncoderDecoder
from attnbook.models.transformer import Size, transformer

SOURCE = torch.tensor([[4, 9, 18, 5, 6], [7, 8, 9, PAD, PAD]])
LENGTHS = torch.tensor([5, 3])
PREVIOUS = torch.tensor([[1, 11, 12, 13], [1, 22, 21, 5]])
B, S, T, L, H = 2, 5, 4, 2, 3


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        yield transformer(19, 23, Size(12, H, 17, L)).eval()


def test_every_map_is_there_and_its_rows_add_up(model):
    found = collect_maps(model, SOURCE, LENGTHS, PREVIOUS)
    assert found.encoder.shape == (B, L, H, S, S)
    assert found.decoder.shape == (B, L, H, T, T)
    assert found.cross.shape == (B, L, H, T, S)
    for weights in found:
        rows = weights.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows))


def test_no_weight_is_on_later_positions_or_padding(model):
    found = collect_maps(model, SOURCE, LENGTHS, PREVIOUS)
    assert found.decoder.triu(1).abs().max() == 0
    assert found.encoder[1, ..., 3:].abs().max() == 0
    assert found.cross[1, ..., 3:].abs().max() == 0


def test_the_decoder_returns_the_mean_of_its_last_cross_attention(model):
    message = model(SOURCE, LENGTHS, PREVIOUS)
    found = collect_maps(model, SOURCE, LENGTHS, PREVIOUS)
    torch.testing.assert_close(found.cross[:, -1].mean(1), message.weights)


def test_recording_weights_does_not_change_the_model(model):
    before = model(SOURCE, LENGTHS, PREVIOUS).logits
    first = collect_maps(model, SOURCE, LENGTHS, PREVIOUS)
    second = collect_maps(model, SOURCE, LENGTHS, PREVIOUS)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(model(SOURCE, LENGTHS, PREVIOUS).logits, before)
    hooks = [m._forward_pre_hooks for m in model.modules()]
    assert not any(hooks)


@pytest.mark.refusal
def test_a_model_without_blocks_is_refused():
    whole = EncoderDecoder(torch.nn.Linear(2, 3), torch.nn.GRU(2, 3))
    with pytest.raises(ValueError, match="these are Linear and GRU"):
        collect_maps(whole, SOURCE, LENGTHS, PREVIOUS)
