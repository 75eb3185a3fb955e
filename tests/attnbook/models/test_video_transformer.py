"""Pooling over frames, and Transformers over the patches of clips."""

import pytest
import torch

from attnbook.models.video_transformer import (
    FACTORIZED,
    JOINT,
    SPACE_ONLY,
    ClipClassifier,
    FrameEncoder,
    LastFrame,
    MeanPooling,
    TemporalAttentionPooling,
    VideoTransformer,
)

B, T, SIZE, C, K = 2, 5, 8, 6, 3
FRAMES = torch.rand(B, T, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def build(pooling):
    torch.manual_seed(0)
    return ClipClassifier(FrameEncoder(SIZE, C), pooling, C, K)


def test_attention_weighs_frames_by_their_products_with_one_query():
    model = build(TemporalAttentionPooling(C))
    logits, weights = model(FRAMES)
    features = model.encoder(FRAMES)
    query = model.pooling.query[0]
    for b in range(B):
        scores = torch.stack([query @ features[b, t] for t in range(T)])
        wanted = (scores / C**0.5).softmax(0)
        torch.testing.assert_close(weights[b], wanted)
        context = sum(w * f for w, f in zip(wanted, features[b], strict=True))
        torch.testing.assert_close(logits[b], model.output(context.relu()))


def test_the_baselines_weigh_frames_equally_or_take_the_last():
    assert torch.equal(build(MeanPooling())(FRAMES)[1], torch.full((B, T), 0.2))
    logits, weights = build(LastFrame())(FRAMES)
    assert torch.equal(weights, torch.eye(T)[[-1] * B])
    changed = FRAMES.clone()
    changed[:, :-1] = 0
    torch.testing.assert_close(build(LastFrame())(changed)[0], logits)


def build_transformer(kinds, patch=4):
    torch.manual_seed(0)
    return VideoTransformer(T, SIZE, patch, K, kinds, width=C, heads=2)


def test_all_three_transformers_have_equally_many_parameters():
    counts = {
        sum(p.numel() for p in build_transformer(kinds).parameters())
        for kinds in (JOINT, FACTORIZED, SPACE_ONLY)
    }
    assert len(counts) == 1


def test_frames_exchange_nothing_before_the_mean_with_space_alone():
    """The logits are a mean over frames, each computed from one frame."""
    model = build_transformer(SPACE_ONLY)
    logits, (weights,) = model(FRAMES)
    assert [x.shape for x in weights] == [(B * T, 2, 4, 4)] * 2
    changed = FRAMES.clone()
    changed[:, 0] = 0
    first = model(changed)[0] - logits
    changed[:, 3] = 0
    both = model(changed)[0] - logits
    changed[:, 0] = FRAMES[:, 0]
    third = model(changed)[0] - logits
    torch.testing.assert_close(both, first + third, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kinds", [JOINT, FACTORIZED])
def test_frames_exchange_information_with_time(kinds):
    model = build_transformer(kinds)
    logits = model(FRAMES)[0]
    found = []
    for frames in ([0], [0, 3], [3]):
        changed = FRAMES.clone()
        changed[:, frames] = 0
        found.append(model(changed)[0] - logits)
    first, both, third = found
    assert (both - first - third).abs().max() > 1e-4


@pytest.mark.refusal
def test_frames_that_do_not_divide_into_patches_are_refused():
    with pytest.raises(ValueError, match=r"8 .* 8 .* 3 .* 3"):
        build_transformer(JOINT, patch=3)(FRAMES)
