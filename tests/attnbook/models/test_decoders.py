"""What holds of every decoder; test_no_leaks.py asks what each can read."""

import pytest
import torch
from torch import nn

from attnbook.attention import recurrent
from attnbook.models.recurrent import BahdanauDecoder
from attnbook.models.transformer import Size, transformer
from leak_cases import (
    DECODERS,
    LENGTHS,
    PREVIOUS,
    SOURCE,
    C,
    V,
    build_encoder_decoder,
    build_global,
    build_luong,
)

EVERY = DECODERS | {
    "Bahdanau, LSTM": lambda: build_encoder_decoder(
        BahdanauDecoder(V, 3, C, C, 3, 5, recurrent=nn.LSTM), cell=nn.LSTM
    ),
    "Luong, fed, LSTM": lambda: build_global(
        recurrent.DotScore(C, C), feeding=True, recurrent=nn.LSTM
    ),
    "Luong, predictive, fed": lambda: build_luong(
        recurrent.PredictiveAttention(recurrent.GeneralScore(C, C), C, 5, 2),
        feeding=True,
    ),
    "Transformer": lambda: transformer(V, V, Size(C, 3, 17, 2)).eval(),
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
