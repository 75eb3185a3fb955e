"""Models of images and clips: patches, pooling, a loss."""

import math

import pytest
import torch
import torch.nn.functional as F

from attnbook.models import frame_pooling
from attnbook.models.vision import (
    ConvolutionalFeatures,
    PooledClassifier,
    SpatialAttentionPooling,
    VisionTransformer,
    contrastive_loss,
    cut_patches,
    measure_mass_in_boxes,
)

RNG = torch.Generator().manual_seed(0)
PIXELS = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def test_patches_are_those_of_pytorch():
    for size in (1, 2):
        patches = cut_patches(PIXELS, size)
        wanted = F.unfold(PIXELS, size, stride=size).transpose(1, 2)
        assert torch.equal(patches, wanted)
    assert cut_patches(PIXELS.byte(), 2).dtype is torch.uint8


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cut_patches(PIXELS, 4), "4 by 6 pixels do not .* of 4 by 4"),
        (
            lambda: measure_mass_in_boxes(
                torch.ones(1, 2, 2), torch.tensor([[2, 3, 4, 9]]), 8
            ),
            "between 0 and 8, not between 2 and 9",
        ),
    ],
)
def test_images_and_boxes_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


IMAGES = torch.rand(3, 2, 6, 6, generator=torch.Generator().manual_seed(0))


def test_position_zero_is_the_class_token():
    model = VisionTransformer(6, 3, 8, 2, hidden=10, channels=2, classes=5)
    x = model.embed(IMAGES)
    assert x.shape == (3, 5, 8)
    table = model.positions.table
    torch.testing.assert_close(x[1, 0], model.class_token + table[0])
    patch = model.project(IMAGES[1, :, :3, 3:].flatten()) + table[2]
    torch.testing.assert_close(x[1, 2], patch)
    logits = model(IMAGES)
    for block in model.blocks:
        x = block(x)
    torch.testing.assert_close(logits, model.output(model.norm(x[:, 0])))


def test_a_pooled_classifier_weighs_its_convolutions_features():
    features = ConvolutionalFeatures((1, 3), (2,))
    model = PooledClassifier(features, SpatialAttentionPooling, classes=4)
    images, pooling = torch.rand(2, 1, 4, 6, generator=RNG), model.pooling
    places = F.conv2d(images, *features[0].parameters(), 2, 1).relu()
    places = places.flatten(2).mT  # (B, N, C)
    scores = places @ pooling.key.weight.T @ pooling.query / 3**0.5
    weights = scores.softmax(-1)
    torch.testing.assert_close(pooling.compute_weights(places), weights)
    mean = (weights[..., None] * places).sum(1)
    torch.testing.assert_close(model(images), model.output(mean))


def test_mass_in_boxes_counts_parts_of_cells():
    weights = torch.tensor([[[0.4, 0.1], [0.2, 0.3]]]).repeat(5, 1, 1)
    boxes = torch.tensor(
        [[0, 0, 8, 8], [0, 0, 4, 4], [2, 0, 4, 8], [3, 3, 5, 5], [0, 0, 2, 2]]
    )
    found = measure_mass_in_boxes(weights, boxes, 8)
    torch.testing.assert_close(found, torch.tensor([1, 0.4, 0.25, 1 / 16, 0.1]))


CLIPS = torch.rand(2, 5, 8, 8, generator=RNG)


def test_attention_weighs_frames_by_their_products_with_one_query():
    encoder = frame_pooling.FrameEncoder(8, 6)
    pooling = frame_pooling.TemporalAttentionPooling(6)
    model = frame_pooling.ClipClassifier(encoder, pooling, 6, 3)
    logits, weights = model(CLIPS)
    features = model.encoder(CLIPS)
    wanted = (features @ model.pooling.query[0] / 6**0.5).softmax(-1)
    torch.testing.assert_close(weights, wanted)
    context = (wanted[..., None] * features).sum(1)
    torch.testing.assert_close(logits, model.output(context.relu()))


def test_the_loss_is_the_mean_of_both_directions():
    similarity = torch.tensor([[2.0, 0.0], [1.0, 3.0]])
    rows = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-2))
    columns = math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-3))
    torch.testing.assert_close(
        contrastive_loss(similarity), torch.tensor((rows + columns) / 4)
    )
