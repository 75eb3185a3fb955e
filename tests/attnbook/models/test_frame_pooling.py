"""Pooling over the frames of a clip."""

import torch

from attnbook.models.frame_pooling import (
    ClipClassifier,
    FrameEncoder,
    LastFrame,
    MeanPooling,
    TemporalAttentionPooling,
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
