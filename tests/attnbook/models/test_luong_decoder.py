import pytest
import torch
from torch import nn

from attnbook.attention.local import (
    GlobalAttention,
    MonotonicAttention,
    PredictiveAttention,
)
from attnbook.attention.luong import DotScore, GeneralScore
from attnbook.models.encoder import Encoder
from attnbook.models.encoder_decoder import EncoderDecoder
from attnbook.models.luong_decoder import LuongDecoder

KINDS = {
    "global": lambda: GlobalAttention(DotScore(8, 8)),
    "monotonic": lambda: MonotonicAttention(GeneralScore(8, 8), 1),
    "predictive": lambda: PredictiveAttention(GeneralScore(8, 8), 8, 5, 2),
}
SOURCE = torch.tensor([[4, 5, 6, 7, 8, 9], [9, 8, 4, 0, 0, 0]])
LENGTHS = torch.tensor([6, 3])
PREVIOUS = torch.tensor([[1, 4, 5, 6, 7], [1, 12, 11, 10, 9]])


def make(kind="global", **changes):
    torch.manual_seed(7)
    decoder = LuongDecoder(13, 3, 8, 8, KINDS[kind](), **changes)
    return EncoderDecoder(Encoder(11, 3, 4), decoder).eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("cell", [nn.GRU, nn.LSTM])
def test_single_steps_equal_teacher_forcing(kind, feeding, cell):
    model = make(kind, feeding=feeding, recurrent=cell)
    whole = model(SOURCE, LENGTHS, PREVIOUS)
    memory = model.encoder(SOURCE, LENGTHS)
    state = model.decoder.start(memory)
    for t in range(PREVIOUS.shape[1]):
        logits, state, weights = model.decoder.step(PREVIOUS[:, t], state, memory)
        torch.testing.assert_close(logits, whole.logits[:, t])
        torch.testing.assert_close(weights, whole.weights[:, t])


def test_the_state_depends_on_a_context_only_with_input_feeding():
    for feeding in (False, True):
        model = make(feeding=feeding)
        memory = model.encoder(SOURCE, LENGTHS)
        # Same first state, other memory: only what is read from it may differ.
        other = memory._replace(states=memory.states.flip(1))
        states = []
        for m in (memory, other):
            state = model.decoder.start(m)
            for t in range(3):
                _, state, _ = model.decoder.step(PREVIOUS[:, t], state, m)
            states.append(state[0])
        assert torch.equal(*states) is not feeding


def test_later_symbols_do_not_change_earlier_outputs():
    for feeding in (False, True):
        model = make("predictive", feeding=feeding)
        changed = PREVIOUS.clone()
        changed[:, 3] = 5
        before = model(SOURCE, LENGTHS, PREVIOUS).logits
        after = model(SOURCE, LENGTHS, changed).logits
        torch.testing.assert_close(before[:, :3], after[:, :3])
        assert not torch.allclose(before[:, 3], after[:, 3])


def test_padding_changes_nothing():
    model = make("monotonic", feeding=True)
    alone = model(SOURCE[1:, :3], LENGTHS[1:], PREVIOUS[1:])
    padded = model(SOURCE, LENGTHS, PREVIOUS)
    torch.testing.assert_close(alone.logits[0], padded.logits[1])


def test_every_parameter_learns():
    model = make("predictive", feeding=True).train()
    model(SOURCE, LENGTHS, PREVIOUS).logits.square().sum().backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None]
    assert idle == []
