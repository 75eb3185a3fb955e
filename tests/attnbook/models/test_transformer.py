"""The Transformer's parts against PyTorch's; what must hold of the whole."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook.attention.self_attention import causal_mask
from attnbook.data.vocabulary import PAD
from attnbook.models.encoder import Memory
from attnbook.models.from_pytorch import copy_block
from attnbook.models.language_model import LanguageModel, sample
from attnbook.models.layer_norm import LayerNorm, layer_norm
from attnbook.models.transformer import Size, TransformerDecoder, transformer
from attnbook.models.transformer_blocks import (
    DecoderBlock,
    EncoderBlock,
    PostNorm,
    PreNorm,
)
from attnbook.training.search import beam_search, greedy_search

B, T, S, C, H, HIDDEN = 2, 5, 7, 12, 3, 17
BOTH = pytest.mark.parametrize("residual", [PostNorm, PreNorm])


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


@torch.no_grad()
def give(ours, theirs):
    """Copy the weights of PyTorch's layer into our block, made uneven first."""
    for x in theirs.parameters():
        x.add_(0.3 * torch.randn_like(x))
    copy_block(ours, theirs)


def assert_agree(ours, theirs, inputs):
    """Assert equal outputs, and equal gradients for a random upstream."""
    for x in inputs:
        x.requires_grad_()
    one, other = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(one, other)
    upstream = torch.randn_like(one)
    for a, b in zip(
        torch.autograd.grad(one, inputs, upstream),
        torch.autograd.grad(other, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_layer_norm_is_pytorchs(eps):
    x, gain, bias = drawn(2, 3, 7), drawn(7), drawn(7)
    assert_agree(
        lambda *given: layer_norm(*given, eps),
        lambda x, gain, bias: F.layer_norm(x, (7,), gain, bias, eps),
        [x, gain, bias],
    )


def test_layer_norm_of_equal_entries_is_its_bias():
    norm = LayerNorm(5)
    assert torch.equal(norm(torch.full((2, 5), 3.0)), torch.zeros(2, 5))


@BOTH
@pytest.mark.parametrize("masked", [False, True])
def test_the_encoder_block_is_pytorchs(residual, masked):
    theirs = nn.TransformerEncoderLayer(
        C, H, HIDDEN, 0.0, batch_first=True, norm_first=residual is PreNorm
    ).double()
    ours = EncoderBlock(C, H, HIDDEN, residual=residual).double()
    give(ours, theirs)
    mask = causal_mask(T, T) if masked else None
    hidden = None if mask is None else ~mask
    assert_agree(
        lambda x: ours(x, mask),
        lambda x: theirs(x, src_mask=hidden),
        [drawn(B, T, C)],
    )


@BOTH
def test_the_decoder_block_is_pytorchs(residual):
    theirs = nn.TransformerDecoderLayer(
        C, H, HIDDEN, 0.0, batch_first=True, norm_first=residual is PreNorm
    ).double()
    ours = DecoderBlock(C, H, HIDDEN, residual=residual).double()
    give(ours, theirs)
    real = torch.arange(S) < torch.tensor([[4], [7]])
    past = causal_mask(T, T)
    assert_agree(
        lambda x, memory: ours(x, memory, past, real[:, None, None])[0],
        lambda x, memory: theirs(
            x, memory, tgt_mask=~past, memory_key_padding_mask=~real
        ),
        [drawn(B, T, C), drawn(B, S, C)],
    )


@BOTH
def test_the_stack_is_pytorchs(residual):
    layer = nn.TransformerEncoderLayer(
        C, H, HIDDEN, 0.0, batch_first=True, norm_first=residual is PreNorm
    )
    norm = nn.LayerNorm(C) if residual is PreNorm else None
    theirs = nn.TransformerEncoder(layer, 3, norm, enable_nested_tensor=False).double()
    size = Size(C, H, HIDDEN, 3, residual=residual)
    ours = size.stack(EncoderBlock).double()
    for mine, layer in zip(ours, theirs.layers, strict=True):
        give(mine, layer)
    last = residual.make_final_norm(C).double()

    def whole(x):
        for block in ours:
            x = block(x)
        return last(x)

    assert_agree(whole, theirs, [drawn(B, T, C)])


def small(residual=PreNorm, dropout=0.0):
    size = Size(C, H, HIDDEN, 2, dropout, residual)
    return transformer(19, 23, size).double().eval()


SOURCE = torch.tensor([[4, 9, 18, 5, 6], [7, 8, 9, PAD, PAD]])
LENGTHS = torch.tensor([5, 3])
PREVIOUS = torch.tensor([[1, 11, 12, 13], [1, 22, 21, 5]])


@BOTH
def test_the_transformer_is_causal_and_ignores_padding(residual):
    model = small(residual)
    message = model(SOURCE, LENGTHS, PREVIOUS)
    changed = PREVIOUS.clone()
    changed[:, 2:] = 7
    later = model(SOURCE, LENGTHS, changed)
    torch.testing.assert_close(later.logits[:, :2], message.logits[:, :2])
    assert not torch.allclose(later.logits[:, 2:], message.logits[:, 2:])
    longer = F.pad(SOURCE, (0, 3), value=PAD)
    padded = model(longer, LENGTHS, PREVIOUS)
    torch.testing.assert_close(padded.logits, message.logits)
    other = SOURCE.clone()
    other[1, 3:] = 11
    torch.testing.assert_close(model(other, LENGTHS, PREVIOUS).logits, message.logits)
    assert message.weights[1, :, 3:].abs().max() == 0
    torch.testing.assert_close(message.weights.sum(-1), torch.ones(2, 4).double())


def test_single_steps_equal_teacher_forcing():
    model = small()
    memory = model.encoder(SOURCE, LENGTHS)
    whole = model.decoder(PREVIOUS, memory)
    state = model.decoder.start(memory)
    for t in range(4):
        logits, state, weights = model.decoder.step(PREVIOUS[:, t], state, memory)
        torch.testing.assert_close(logits, whole.logits[:, t])
        torch.testing.assert_close(weights, whole.weights[:, t])


def test_the_search_of_chapter_1_works_with_it():
    model = small().float()
    found = greedy_search(model, SOURCE, LENGTHS, limit=6)
    alone = beam_search(model, SOURCE[1, :3], width=1, limit=6)[0]
    assert found[1].ids == alone.ids
    assert found[0].weights.shape[1] == 5


def test_input_and_output_embeddings_are_tied():
    decoder = TransformerDecoder(23, Size(C, H, HIDDEN, 1)).double()
    assert next(iter(decoder.parameters())) is decoder.embed.table.weight
    shapes = [tuple(x.shape) for x in decoder.parameters()]
    assert shapes.count((23, C)) == 1
    memory = Memory(drawn(2, 7, C), drawn(2, C), torch.tensor([7, 4]))
    decoder(PREVIOUS, memory).logits.sum().backward()
    grad = decoder.embed.table.weight.grad
    assert (grad[2:].abs().sum(-1) > 0).all()  # by the output, all are reached


def test_embeddings_and_positional_encodings_have_the_same_scale():
    torch.manual_seed(0)
    embed = transformer(4000, 7, Size(64)).encoder.embed
    words = embed.table.weight[1:] * 8
    assert 0.98 < words.square().mean().item() < 1.02


def test_the_language_model_is_causal_and_continues():
    model = LanguageModel(13, Size(C, H, HIDDEN, 2)).double().eval()
    ids = torch.tensor([[1, 5, 7, 9]])
    moved = torch.tensor([[1, 5, 2, 2]])
    torch.testing.assert_close(model(ids)[:, :2], model(moved)[:, :2])
    likeliest = sample(model, ids, 3, temperature=0)
    assert likeliest.shape == (1, 7)
    assert likeliest[0, 4] == model(ids)[0, -1].argmax()
    rng = [torch.Generator().manual_seed(1) for _ in range(2)]
    a, b = (sample(model, ids, 5, rng=r) for r in rng)
    assert torch.equal(a, b)
    assert sample(model, ids, 2, window=2, temperature=0).shape == (1, 6)


@pytest.mark.refusal
def test_bad_sampling_is_refused():
    model = LanguageModel(13, Size(C, H, HIDDEN, 1))
    with pytest.raises(ValueError, match="-1"):
        sample(model, torch.ones(1, 2, dtype=torch.long), 1, temperature=-1)
    with pytest.raises(ValueError, match="at least 1 symbol"):
        sample(model, torch.ones(1, 0, dtype=torch.long), 1)


@pytest.mark.refusal
def test_an_encoder_block_takes_no_decoder_layer():
    theirs = nn.TransformerDecoderLayer(C, H, HIDDEN, batch_first=True)
    with pytest.raises(ValueError, match="only one of them has cross-attention"):
        copy_block(EncoderBlock(C, H, HIDDEN), theirs)
