"""What must hold of the Transformer; test_from_pytorch.py compares with PyTorch's."""

import math

import pytest
import torch

from attnbook.decoding.generation import sample
from attnbook.models.recurrent import Memory
from attnbook.models.transformer import (
    Embedding,
    LanguageModel,
    QKNormAttention,
    Size,
    TransformerDecoder,
    soft_cap,
)
from attnbook.positions.absolute import sinusoidal

B, T, C, H, HIDDEN = 2, 5, 12, 3, 17


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_embeddings_are_as_large_as_the_encodings():
    ids = torch.tensor([[4, 9, 18]])
    embed = Embedding(19, C)
    expected = embed.table(ids) * C**0.5 + sinusoidal(3, C)
    torch.testing.assert_close(embed(ids), expected)


PREVIOUS = torch.tensor([[1, 11, 12, 13], [1, 22, 21, 5]])


def test_input_and_output_embeddings_are_tied():
    decoder = TransformerDecoder(23, Size(C, H, HIDDEN, 1)).double()
    assert next(iter(decoder.parameters())) is decoder.embed.table.weight
    memory = Memory(drawn(2, 7, C), drawn(2, C), torch.tensor([7, 4]))
    decoder(PREVIOUS, memory).logits.sum().backward()
    grad = decoder.embed.table.weight.grad
    assert (grad[2:].abs().sum(-1) > 0).all()  # by the output, all are reached


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
    found = sample(model, ids, 2, temperature=0, window=2)
    assert found[0, 4] == model(ids[:, 2:])[0, -1].argmax()


@pytest.mark.refusal
def test_bad_sampling_is_refused():
    model = LanguageModel(13, Size(C, H, HIDDEN, 1))
    with pytest.raises(ValueError, match="-1"):
        sample(model, torch.ones(1, 2, dtype=torch.long), 1, temperature=-1)
    with pytest.raises(ValueError, match="at least 1 symbol"):
        sample(model, torch.ones(1, 0, dtype=torch.long), 1)


def test_a_soft_cap_keeps_small_scores_and_stops_large_ones():
    scores = torch.tensor([-1e4, -0.01, 0.0, 0.01, 1e4])
    capped = soft_cap(scores, 10.0)
    torch.testing.assert_close(capped[1:4], scores[1:4], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(capped[[0, 4]], torch.tensor([-10.0, 10.0]))
    assert (soft_cap(torch.linspace(-30, 30, 61), 10.0).diff() > 0).all()


def scores_of(attention, x):
    query, key, _ = attention.project(x, x)
    return attention.scores(query, key)


def test_qk_norm_removes_the_scale_of_queries_and_keys():
    attention, x = QKNormAttention(C, H), torch.randn(B, T, C)
    before = scores_of(attention, x)
    assert before.abs().max() <= math.sqrt(C / H)
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight.mul_(1000)
            part.bias.mul_(1000)
    torch.testing.assert_close(scores_of(attention, x), before, atol=1e-3, rtol=1e-3)


@pytest.mark.refusal
def test_a_cap_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="the cap must be above 0, not 0"):
        soft_cap(torch.zeros(2), 0.0)
