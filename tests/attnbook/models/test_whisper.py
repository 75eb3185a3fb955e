"""Whisper on a tiny random configuration: what must hold for any weights.

tests/oracles/against_whisper.py compares it with transformers'.
"""

import pytest
import torch

from attnbook.models.whisper import keep_memory_projections
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


def test_an_odd_number_of_frames_is_rounded_up():
    states = build().encoder(SPECTROGRAM[..., :7])
    assert states.shape == (B, 4, CONFIG.width)


def test_a_later_token_does_not_change_earlier_logits():
    model, changed = build(), IDS.clone()
    changed[:, -1] = (changed[:, -1] + 1) % CONFIG.symbols
    before, after = (model(SPECTROGRAM, ids)[0] for ids in (IDS, changed))
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


def test_all_weights_have_gradients():
    model = build()
    model(SPECTROGRAM, IDS)[0].square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        # A shift of all keys does not change the weights: its gradient is 0.
        assert name.endswith("key.bias") or p.grad.abs().max() > 1e-6, name


@torch.no_grad()
def test_kept_projections_are_used_for_the_same_memory_only():
    decoder = build().decoder
    one, other = torch.randn(2, 1, 4, CONFIG.width, generator=RNG)
    ids = IDS[:1]
    wanted = [decoder(ids, memory)[0] for memory in (one, one, other, one)]
    with keep_memory_projections(decoder):
        layer = decoder.blocks[0].cross.key
        assert layer(one) is layer(one)
        found = [decoder(ids, memory)[0] for memory in (one, one, other, one)]
    assert layer(one) is not layer(one)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.refusal
def test_too_many_frames_or_tokens_are_refused():
    model = build()
    with pytest.raises(ValueError, match=r"23 frames, but .* positions for 22"):
        model.encoder(torch.zeros(1, CONFIG.mels, 23))
    with pytest.raises(ValueError, match=r"10 tokens, but .* positions for 9"):
        model(SPECTROGRAM[:1], torch.zeros(1, 10, dtype=torch.long))
