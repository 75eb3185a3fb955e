"""The listener's pyramid, the speller, and sounds that they refuse."""

import pytest
import torch

from attnbook.data.spoken_digits import RATE, join_digits
from attnbook.decoding.generation import greedy_search
from attnbook.models.listen_attend_spell import (
    SECONDS,
    Listener,
    compute_frames,
    join_neighbors,
    make_listen_attend_spell,
)

C, V = 5, 13
LENGTHS = torch.tensor([23, 9])
PREVIOUS = torch.tensor([[1, 4, 5, 6], [1, 12, 11, 10]])


def draw_frames():
    rng = torch.Generator().manual_seed(0)
    return torch.randn(2, 23, C, generator=rng)


def make(channels=C):
    torch.manual_seed(3)
    sizes = {"hidden": 6, "embedding": 3, "decoder": 7}
    return make_listen_attend_spell(channels, V, **sizes).eval()


def test_neighbors_are_joined_and_the_last_group_is_padded():
    frames = torch.arange(1.0, 11).reshape(1, 5, 2)
    wanted = [[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 10, 0, 0]]
    assert join_neighbors(frames, 2)[0].tolist() == wanted
    assert torch.equal(join_neighbors(frames, 1), frames)


def test_eight_frames_become_one_state():
    torch.manual_seed(3)
    memory = Listener(C, 6)(draw_frames(), LENGTHS)
    assert memory.states.shape == (2, 3, 12)
    assert memory.lengths.tolist() == [3, 2]
    assert SECONDS == 0.08
    assert torch.equal(memory.last[0, :6], memory.states[0, 2, :6])
    assert torch.equal(memory.last[1, :6], memory.states[1, 1, :6])
    assert torch.equal(memory.last[:, 6:], memory.states[:, 0, 6:])


def test_frames_after_the_end_change_nothing():
    model, frames = make(), draw_frames()
    frames[1, 9:] = torch.nan
    padded = model(frames, LENGTHS, PREVIOUS)
    alone = model(frames[1:, :9], LENGTHS[1:], PREVIOUS[1:])
    torch.testing.assert_close(padded.logits[1:], alone.logits)
    assert not padded.weights[1, :, 2:].any()


def test_a_sound_becomes_frames_and_symbols():
    sound = join_digits([3, 1], [0.1, 0.25]).sound
    frames = compute_frames(sound, RATE)
    assert frames.shape == (-(-len(sound) // 160), 40)
    assert frames[:8].max() < frames.max() - 1  # silence, then "three"
    [found] = greedy_search(make(40), frames[None], torch.tensor([len(frames)]), 5)
    assert found.weights.shape[1] == -(-len(frames) // 8)


@pytest.mark.refusal
def test_sounds_lengths_and_groups_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"8,000 samples .* needs 16,000"):
        compute_frames(torch.zeros(800), 8000)
    with pytest.raises(ValueError, match="0 samples, but the spectrogram"):
        compute_frames(torch.zeros(0), RATE)
    with pytest.raises(ValueError, match="24 but the source is only 23"):
        Listener(C, 6)(draw_frames(), torch.tensor([23, 24]))
    with pytest.raises(ValueError, match="at least 1 frame, not 0"):
        join_neighbors(draw_frames(), 0)
