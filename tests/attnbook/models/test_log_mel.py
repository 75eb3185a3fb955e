"""The log-mel spectrogram of sounds whose spectrum is known.

tests/oracles/against_whisper.py compares it with transformers'.
"""

import math

import pytest
import torch

from attnbook.models.whisper import (
    RATE,
    hertz_to_mel,
    log_mel_spectrogram,
    make_mel_filters,
    mel_to_hertz,
)


def make_tone(hertz, seconds=0.5):
    return 0.5 * (torch.arange(int(seconds * RATE)) / RATE * hertz * math.tau).sin()


def test_the_mel_scale_is_linear_then_logarithmic():
    mel = hertz_to_mel(torch.tensor([0.0, 500.0, 1000.0, 6400.0]))
    # 27 mels above the corner at 15 mels, the frequency is 6.4 times as high.
    torch.testing.assert_close(mel, torch.tensor([0.0, 7.5, 15.0, 42.0]))


def test_the_mel_scale_has_an_inverse():
    hertz = torch.linspace(0, RATE / 2, 23)
    torch.testing.assert_close(mel_to_hertz(hertz_to_mel(hertz)), hertz)


def test_the_filters_are_triangles_of_equal_area():
    filters = make_mel_filters(5, 4001)
    area = filters.sum(dim=1) * RATE / 2 / 4000
    torch.testing.assert_close(area, torch.ones(5), rtol=1e-3, atol=0)
    peaks = filters.argmax(dim=1)
    for row, peak in zip(filters, peaks, strict=True):
        assert (row[:peak].diff() >= 0).all()
        assert (row[peak:].diff() <= 0).all()


@pytest.mark.parametrize("hertz", [440.0, 1234.5, 5000.0])
def test_a_tone_is_loudest_in_its_band(hertz):
    found = log_mel_spectrogram(make_tone(hertz), RATE, seconds=1)
    assert found.shape == (80, 100)
    filters = make_mel_filters()
    bin_ = round(hertz / (RATE / 2) * 200)
    wanted = filters[:, bin_].argmax()
    assert abs(int(found[:, 25].argmax()) - int(wanted)) <= 1


def test_silence_after_the_sound_has_the_smallest_value():
    found = log_mel_spectrogram(make_tone(440.0), RATE, seconds=1)
    floor = found.amin()
    assert (found[:, 55:] == floor).all()
    # Eight powers of ten below the largest value, divided by four.
    torch.testing.assert_close(found.amax() - floor, torch.tensor(2.0))


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (8000, 8000, "8,000 samples per second, .* needs 16,000"),
        (16001, RATE, "has 16,001 samples, but .* takes 1 to 16,000"),
        (0, RATE, "has 0 samples, but .* takes 1 to 16,000"),
    ],
)
def test_a_sound_of_another_rate_or_length_is_refused(samples, rate, message):
    with pytest.raises(ValueError, match=message):
        log_mel_spectrogram(torch.zeros(samples), rate, seconds=1)
