"""Encoders and decoders; test_no_leaks.py asks what each can read."""

import pytest
import torch
from torch import nn

from attnbook.attention import recurrent
from attnbook.attention.recurrent import context
from attnbook.models.recurrent import BahdanauDecoder, Encoder, run_recurrent
from leak_cases import (
    DECODERS,
    LENGTHS,
    PREVIOUS,
    SOURCE,
    C,
    build_global,
)
from small_models import LENGTHS as ENDS
from small_models import make_model, make_sources

EVERY = DECODERS | {
    "Luong, fed, LSTM": lambda: build_global(
        recurrent.DotScore(C, C), feeding=True, recurrent=nn.LSTM
    ),
}


@pytest.fixture(params=EVERY)
def model(request):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return EVERY[request.param]()


def test_single_steps_equal_teacher_forcing(model):
    whole = model(SOURCE, LENGTHS, PREVIOUS)
    memory = model.encoder(SOURCE, LENGTHS)
    state = model.decoder.start(memory)
    for t in range(PREVIOUS.shape[1]):
        logits, state, weights = model.decoder.step(PREVIOUS[:, t], state, memory)
        torch.testing.assert_close(logits, whole.logits[:, t])
        if whole.weights is not None:
            torch.testing.assert_close(weights, whole.weights[:, t])
    if decode := getattr(model.decoder, "decode", None):
        first, state = decode(PREVIOUS[:, :2], model.decoder.start(memory), memory)
        rest, _ = decode(PREVIOUS[:, 2:], state, memory)
        joined = torch.cat([first.logits, rest.logits], dim=1)
        torch.testing.assert_close(joined, whole.logits)


def test_every_parameter_learns(model):
    logits = model(SOURCE, LENGTHS, PREVIOUS).logits
    rng = torch.Generator().manual_seed(0)
    logits.backward(torch.randn(logits.shape, generator=rng))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # A shift of all keys changes no weight: the key's bias gets nothing.
        assert parameter.grad.abs().max() > 0 or name.endswith("key.bias"), name


def test_the_state_depends_on_a_context_only_with_input_feeding():
    for feeding in (False, True):
        model = build_global(recurrent.DotScore(C, C), feeding=feeding)
        memory = model.encoder(SOURCE, LENGTHS)
        # Same first state, other memory: only what is read from it may differ.
        states = []
        for given in (memory, memory._replace(states=memory.states.flip(1))):
            state = model.decoder.start(given)
            for t in range(3):
                _, state, _ = model.decoder.step(PREVIOUS[:, t], state, given)
            states.append(state[0])
        assert torch.equal(*states) is not feeding


def draw(*shape):
    rng = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=rng)


def test_nan_surfaces_where_it_is_attended_to_and_not_in_padding():
    scores, value = draw(2, 3, 5), draw(2, 5, 17)
    lengths = torch.tensor([5, 2])
    clean, _ = context(scores, value, lengths)
    value[1, 2:], scores[1, :, 2:] = torch.nan, torch.inf
    torch.testing.assert_close(context(scores, value, lengths)[0], clean)
    value[1, 1] = torch.nan
    found, _ = context(scores, value, lengths)
    assert found[1].isnan().all() and not found[0].isnan().any()


def test_bahdanaus_decoder_starts_from_the_backward_state_and_attends_first():
    torch.manual_seed(0)
    source = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 0, 0, 0]])
    memory = Encoder(11, 5, 6)(source, torch.tensor([5, 2]))
    decoder = BahdanauDecoder(11, 5, 8, 12, 4, 7)
    state, keys = decoder.start(memory)
    (bridge,) = decoder.bridges
    torch.testing.assert_close(state, torch.tanh(bridge(memory.states[:, 0, 6:])))
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


@pytest.mark.parametrize(("recurrent", "directions"), [(nn.GRU, 1), (nn.LSTM, 2)])
def test_the_state_carried_over_is_the_one_at_the_true_end(recurrent, directions):
    encoder = make_model(recurrent, directions=directions).encoder
    memory = encoder(make_sources(), ENDS)
    for row, length in enumerate(ENDS):
        alone = encoder(make_sources()[row : row + 1, :length], ENDS[[row]])
        torch.testing.assert_close(memory.last[row], alone.last[0])
        torch.testing.assert_close(memory.states[row, :length], alone.states[0])
        assert not memory.states[row, length:].any()
    forward = memory.states[torch.arange(3), ENDS - 1, :4]
    torch.testing.assert_close(memory.last[:, :4], forward)
    if directions == 2:
        torch.testing.assert_close(memory.last[:, 4:], memory.states[:, 0, 4:])


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("width", "lengths", "message"),
    [
        (7, [7, 0, 1], "at least 1, not 0"),
        (7, [8, 1, 1], "8 but the source is only 7"),
        (9, [9, 1, 1], "9 symbols but the model's limit is 7"),
    ],
)
def test_lengths_that_cannot_be_are_refused(width, lengths, message):
    source = torch.full((3, width), 4)
    with pytest.raises(ValueError, match=message):
        make_model().encoder(source, torch.tensor(lengths))


@pytest.mark.refusal
def test_three_directions_are_refused():
    with pytest.raises(ValueError, match="1 or 2, not 3"):
        Encoder(11, 6, 4, directions=3)
