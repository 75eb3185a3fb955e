"""Log-mel spectrograms of known sounds, and a Whisper with random weights.

tests/oracles/against_whisper.py compares it with transformers'.
"""

import math

import pytest
import torch

from attnbook.models.whisper import (
    RATE,
    log_mel_spectrogram,
    make_mel_filters,
)
from tiny_whisper import CONFIG, build

B, F, T = 2, 10, 5
RNG = torch.Generator().manual_seed(3)
SPECTROGRAM = torch.randn(B, CONFIG.mels, F, generator=RNG)
IDS = torch.randint(0, CONFIG.symbols, (B, T), generator=RNG)


def test_the_outputs_have_the_documented_shapes():
    logits, weights = build()(SPECTROGRAM, IDS)
    assert logits.shape == (B, T, CONFIG.symbols)
    assert weights.shape == (B, CONFIG.blocks, CONFIG.heads, T, F // 2)
    ones = torch.ones(weights.shape[:-1])
    torch.testing.assert_close(weights.sum(dim=-1), ones)


def test_a_later_token_does_not_change_earlier_logits():
    model, changed = build(), IDS.clone()
    changed[:, -1] = (changed[:, -1] + 1) % CONFIG.symbols
    before, after = (model(SPECTROGRAM, ids)[0] for ids in (IDS, changed))
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


@pytest.mark.refusal
def test_too_many_frames_or_tokens_are_refused():
    model = build()
    with pytest.raises(ValueError, match=r"23 frames, but .* positions for 22"):
        model.encoder(torch.zeros(1, CONFIG.mels, 23))
    with pytest.raises(ValueError, match=r"10 tokens, but .* positions for 9"):
        model(SPECTROGRAM[:1], torch.zeros(1, 10, dtype=torch.long))


def make_tone(hertz, seconds=0.5):
    return 0.5 * (torch.arange(int(seconds * RATE)) / RATE * hertz * math.tau).sin()


@pytest.mark.parametrize("hertz", [440.0, 5000.0])
def test_a_tone_is_loudest_in_its_band(hertz):
    found = log_mel_spectrogram(make_tone(hertz), RATE, seconds=1)
    assert found.shape == (80, 100)
    filters = make_mel_filters()
    bin_ = round(hertz / (RATE / 2) * 200)
    wanted = filters[:, bin_].argmax()
    assert abs(int(found[:, 25].argmax()) - int(wanted)) <= 1
    softer = log_mel_spectrogram(make_tone(hertz) / 10, RATE, seconds=1)
    # A tenth of the amplitude is a hundredth of the power, divided by four.
    torch.testing.assert_close(found.amax() - softer.amax(), torch.tensor(0.5))
    area = make_mel_filters(5, 4001).sum(dim=1) * RATE / 2 / 4000
    torch.testing.assert_close(area, torch.ones(5), rtol=1e-3, atol=0)


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
