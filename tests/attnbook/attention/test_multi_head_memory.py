import pytest
import torch

from attnbook.attention.multi_head import MultiHeadAttention, MultiHeadMemory
from attnbook.models.recurrent import (
    Encoder,
    EncoderDecoder,
    LuongDecoder,
    count_parameters,
)
from attnbook.training.search import beam_search, greedy_search

SEED = torch.Generator().manual_seed(0)
QUERY = torch.randn(2, 3, 12, generator=SEED)
MEMORY = torch.randn(2, 5, 7, generator=SEED)
LENGTHS = torch.tensor([5, 2])


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_it_equals_multi_head_attention_with_a_padding_mask(heads):
    torch.manual_seed(heads)
    look = MultiHeadMemory(12, 7, heads)
    context, weights = look(QUERY, look.key(MEMORY), MEMORY, LENGTHS)
    mask = (torch.arange(5) < LENGTHS[:, None])[:, None, None]
    expected, each = look.attention(QUERY, MEMORY, mask, need_weights=True)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(weights, each.mean(1))
    alone, _ = look(QUERY[1:], look.key(MEMORY[1:, :2]), MEMORY[1:, :2], LENGTHS[1:])
    torch.testing.assert_close(alone, context[1:])


def test_the_number_of_heads_does_not_change_the_parameters():
    counts = {count_parameters(MultiHeadMemory(12, 7, h)) for h in (1, 2, 3, 12)}
    assert counts == {count_parameters(MultiHeadAttention(12, 1, 7, bias=False))}


def test_the_luong_decoder_works_with_it():
    torch.manual_seed(0)
    decoder = LuongDecoder(13, 3, 8, 8, MultiHeadMemory(8, 8, 4))
    model = EncoderDecoder(Encoder(11, 3, 4), decoder).eval()
    source = torch.tensor([[4, 5, 6, 7]])
    found = greedy_search(model, source, torch.tensor([4]), limit=5)[0]
    assert beam_search(model, source[0], width=1, limit=5)[0].ids == found.ids
    assert found.weights.shape[1] == 4
