"""Spoken digits lie exactly where their intervals say."""

import math
from random import Random

import pytest
import torch

from attnbook.data.spoken_digits import (
    NOISES,
    RATE,
    SHORT_PAUSES,
    SPEEDS,
    change_speed,
    double_rate,
    draw_varied_digits,
    join_digits,
    load_recordings,
    trim_silence,
)


def test_silence_is_trimmed_on_both_sides():
    sound = torch.zeros(800)
    sound[165:410] = 0.5
    # Frames of 80 samples: the third to the sixth have some of it.
    assert torch.equal(trim_silence(sound), sound[160:480])
    # Silence has at most 1/10,000 of the largest power: 1/100 of the amplitude.
    sound[400:480], sound[560:640] = 0.5 * 0.012, 0.5 * 0.008
    assert torch.equal(trim_silence(sound), sound[160:480])
    for recording in load_recordings():
        assert 0.2 < len(recording) / RATE < 1 and 0.05 < recording.abs().max() <= 1


@pytest.mark.parametrize("length", [200, 201])
def test_a_tone_keeps_its_frequency_when_the_rate_is_doubled(length):
    turns = 10 * math.tau / length
    tone = (torch.arange(length) * turns).sin()
    wanted = (torch.arange(2 * length) * turns / 2).sin()
    torch.testing.assert_close(double_rate(tone), wanted, atol=1e-5, rtol=0)


def test_each_digit_is_in_its_interval_and_silence_elsewhere():
    spoken = join_digits([3, 1, 3], [0.25, 0.5, 0.125])
    assert spoken.words == ("three", "one", "three")
    rest = spoken.sound.clone()
    for digit, (begin, end) in zip(spoken.digits, spoken.intervals, strict=True):
        samples = slice(round(begin * RATE), round(end * RATE))
        assert torch.equal(spoken.sound[samples], load_recordings()[digit - 1])
        rest[samples] = 0
    assert not rest.any()
    assert spoken.intervals[0][0] == 0.25
    begin, end = spoken.intervals[1]
    assert spoken.intervals[2][0] == pytest.approx(end + 0.125)
    assert len(spoken.sound) == round(spoken.intervals[2][1] * RATE)


@pytest.mark.refusal
def test_a_digit_without_a_recording_is_refused():
    with pytest.raises(ValueError, match="no recording of 0, only of 1 to 9"):
        join_digits([1, 0], [0.1, 0.1])
    with pytest.raises(ValueError, match="2 digits need as many pauses, not 1"):
        join_digits([1, 2], [0.1])


def test_a_faster_sound_is_shorter_and_higher():
    turns = torch.arange(1000) * math.tau / 100
    faster = change_speed(turns.sin(), 2.0)
    assert len(faster) == 500
    assert int(torch.fft.rfft(faster).abs().argmax()) == 10  # still 10 turns
    assert torch.equal(change_speed(turns, 1.0), turns)


def test_varied_digits_vary_within_their_limits():
    spoken = draw_varied_digits(Random(0), 30)
    assert {*spoken.digits} == {*range(1, 10)}
    recordings, noise = load_recordings(), []
    ends = [0.0, *(end for _, end in spoken.intervals)]
    for digit, (begin, end), before in zip(
        spoken.digits, spoken.intervals, ends, strict=False
    ):
        speed = len(recordings[digit - 1]) / RATE / (end - begin)
        assert SPEEDS[0] - 0.01 < speed < SPEEDS[1] + 0.01
        assert SHORT_PAUSES[0] - 1e-3 < begin - before < SHORT_PAUSES[1] + 1e-3
        noise.append(spoken.sound[round(before * RATE) : round(begin * RATE)])
    level = float(torch.cat(noise).std())
    assert 0.98 * NOISES[0] < level < 1.02 * NOISES[1]
