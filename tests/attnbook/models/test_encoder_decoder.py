import pytest
import torch
from torch import nn

from attnbook.models.recurrent import (
    Encoder,
    run_recurrent,
)
from attnbook.training.loop import compute_symbol_loss
from small_models import LENGTHS, B, T, V, make_model, make_sources


@pytest.mark.parametrize("recurrent", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("directions", [1, 2])
def test_the_state_carried_over_is_the_one_at_the_true_end(recurrent, directions):
    encoder = make_model(recurrent, directions=directions).encoder
    memory = encoder(make_sources(), LENGTHS)
    for row, length in enumerate(LENGTHS):
        alone = encoder(make_sources()[row : row + 1, :length], LENGTHS[[row]])
        torch.testing.assert_close(memory.last[row], alone.last[0])
        torch.testing.assert_close(memory.states[row, :length], alone.states[0])
        assert not memory.states[row, length:].any()
    forward = memory.states[torch.arange(B), LENGTHS - 1, :4]
    torch.testing.assert_close(memory.last[:, :4], forward)
    if directions == 2:
        torch.testing.assert_close(memory.last[:, 4:], memory.states[:, 0, 4:])


def test_a_state_is_carried_between_calls():
    torch.manual_seed(0)
    recurrent = nn.LSTM(3, 5, batch_first=True)
    x, zero = torch.randn(2, 4, 3), (torch.zeros(2, 5), torch.zeros(2, 5))
    whole, _ = run_recurrent(recurrent, x, zero)
    first, state = run_recurrent(recurrent, x[:, :2], zero)
    second, _ = run_recurrent(recurrent, x[:, 2:], state)
    torch.testing.assert_close(whole, torch.cat([first, second], dim=1))


def test_padding_does_not_count_in_the_loss():
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(1, T, V, generator=rng)
    target = torch.tensor([[4, 5, 2, 0, 0]])
    torch.testing.assert_close(
        compute_symbol_loss(logits, target),
        compute_symbol_loss(logits[:, :3], target[:, :3]),
    )


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([7, 0, 1], "at least 1, not 0"),
        ([8, 1, 1], "8 but the source is only 7"),
    ],
)
def test_lengths_that_cannot_be_are_refused(lengths, message):
    with pytest.raises(ValueError, match=message):
        make_model().encoder(make_sources(), torch.tensor(lengths))


@pytest.mark.refusal
def test_a_source_beyond_the_limit_is_refused():
    long = torch.full((1, 9), 4)
    with pytest.raises(ValueError, match="9 symbols but the model's limit is 7"):
        make_model().encoder(long, torch.tensor([9]))


@pytest.mark.refusal
def test_three_directions_are_refused():
    with pytest.raises(ValueError, match="1 or 2, not 3"):
        Encoder(V, 6, 4, directions=3)
