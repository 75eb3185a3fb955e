import pytest
import torch

from attnbook.attention.recurrent import (
    AdditiveAttention,
    additive_scores,
    context,
)
from attnbook.models.recurrent import BahdanauDecoder, Encoder, run_recurrent

B, T, S, DQ, DK, A, E = 2, 3, 5, 7, 11, 13, 17


def draw(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def inputs():
    return [
        draw(B, T, DQ), draw(B, S, DK), draw(A, DQ), draw(A, DK), draw(A)
    ]  # fmt: skip


def test_scores_are_equation_6_entry_by_entry(inputs):
    query, key, W_query, W_key, v = inputs
    scores = additive_scores(*inputs)
    assert scores.shape == (B, T, S)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                inner = W_query @ query[b, t] + W_key @ key[b, s]
                torch.testing.assert_close(scores[b, t, s], (v * inner.tanh()).sum())


def test_gradients_are_right(inputs):
    assert torch.autograd.gradcheck(additive_scores, inputs)
    lengths = torch.tensor([5, 2])
    assert torch.autograd.gradcheck(
        lambda scores, value: context(scores, value, lengths),
        (draw(B, T, S), draw(B, S, E)),
    )


def test_padding_gets_no_weight_whatever_its_values():
    scores, value = draw(B, T, S).detach(), draw(B, S, E).detach()
    lengths = torch.tensor([5, 2])
    clean, _ = context(scores, value, lengths)
    value[1, 2:], scores[1, :, 2:] = torch.nan, torch.inf
    dirty, _ = context(scores, value, lengths)
    torch.testing.assert_close(clean, dirty)


def test_an_unmasked_nan_surfaces():
    value = draw(B, S, E).detach()
    value[1, 1] = torch.nan
    looked, _ = context(draw(B, T, S), value, torch.tensor([5, 2]))
    assert looked[1].isnan().all()
    assert not looked[0].isnan().any()


def test_the_module_equals_the_function():
    attention = AdditiveAttention(DQ, DK, A).double()
    query, key = draw(B, T, DQ), draw(B, S, DK)
    torch.testing.assert_close(
        attention(query, attention.key(key)),
        additive_scores(
            query, key, attention.query.weight, attention.key.weight,
            attention.v,
        ),
    )  # fmt: skip


def decoder_and_memory():
    torch.manual_seed(0)
    encoder = Encoder(11, 5, 6)
    source = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 0, 0, 0]])
    memory = encoder(source, torch.tensor([5, 2]))
    return BahdanauDecoder(11, 5, 8, 12, 4, 7), memory


def test_the_first_state_comes_from_the_backward_direction():
    decoder, memory = decoder_and_memory()
    first, _ = decoder.start(memory)
    backward = memory.states[:, 0, 6:]
    (bridge,) = decoder.bridges
    torch.testing.assert_close(first, torch.tanh(bridge(backward)))


def test_the_decoder_attends_before_its_step():
    decoder, memory = decoder_and_memory()
    state, keys = decoder.start(memory)
    previous = torch.tensor([3, 4])
    logits, (after, _), weights = decoder.step(previous, (state, keys), memory)
    scores = decoder.attention(state[:, None], keys)
    looked, expected = context(scores, memory.states, memory.lengths)
    torch.testing.assert_close(weights, expected[:, 0])
    word = decoder.embed(previous)[:, None]
    output, (new,) = run_recurrent(
        decoder.recurrent, torch.cat([word, looked], -1), (state,)
    )
    torch.testing.assert_close(after, new)
    torch.testing.assert_close(logits, decoder.readout(output, word, looked)[:, 0])


@pytest.mark.refusal
def test_matrices_that_do_not_fit_are_refused(inputs):
    query, key, W_query, W_key, v = inputs
    with pytest.raises(ValueError, match="width 7 but the key is 11 wide"):
        additive_scores(query, key, W_query, W_query, v)
    with pytest.raises(ValueError, match="width 11 but the query is 7 wide"):
        additive_scores(query, key, W_key, W_key, v)


@pytest.mark.refusal
@pytest.mark.parametrize(("lengths", "wrong"), [([5, 0], 0), ([6, 1], 6)])
def test_lengths_that_cannot_be_are_refused(lengths, wrong):
    with pytest.raises(ValueError, match=f"is {wrong} but must .* 1 and 5"):
        context(draw(B, T, S), draw(B, S, E), torch.tensor(lengths))
