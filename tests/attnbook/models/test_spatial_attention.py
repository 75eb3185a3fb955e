"""Pooling by attention, and the mass of a map inside a box."""

import pytest
import torch

from attnbook.models.recurrent import count_parameters
from attnbook.models.vision import (
    ConvolutionalFeatures,
    MaxPooling,
    MeanPooling,
    PooledClassifier,
    SpatialAttentionPooling,
    map_class,
    measure_mass_in_boxes,
)

RNG = torch.Generator().manual_seed(0)
FEATURES = torch.randn(2, 5, 3, generator=RNG)
IMAGES = torch.randn(2, 1, 6, 8, generator=RNG)


def build(pooling):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return PooledClassifier(ConvolutionalFeatures((1, 3), (2,)), pooling, classes=4)


def test_attention_pooling_is_the_formula():
    pooling = SpatialAttentionPooling(3)
    for features, output, weights in zip(
        FEATURES,
        pooling(FEATURES),
        pooling.compute_weights(FEATURES),
        strict=True,
    ):
        scores = features @ pooling.key.weight.T @ pooling.query / 3**0.5
        torch.testing.assert_close(weights, scores.softmax(-1))
        torch.testing.assert_close(output, scores.softmax(-1) @ features)


def test_a_query_of_zeros_is_the_mean():
    pooling = SpatialAttentionPooling(3)
    torch.nn.init.zeros_(pooling.query)
    torch.testing.assert_close(pooling(FEATURES), FEATURES.mean(1))


def test_mean_and_maximum_pool_the_same_layer():
    mean, largest = MeanPooling(3), MaxPooling(3)
    largest.load_state_dict(mean.state_dict())
    values = mean.layer(FEATURES).relu()
    torch.testing.assert_close(mean(FEATURES), values.mean(1))
    torch.testing.assert_close(largest(FEATURES), values.amax(1))


def test_all_poolings_have_equally_many_parameters():
    numbers = {
        count_parameters(build(x))
        for x in (SpatialAttentionPooling, MeanPooling, MaxPooling)
    }
    assert numbers == {3 * 10 + 3 * 3 + 3 + 4 * 4}


def test_a_class_map_is_the_share_of_the_positive_contributions():
    model = build(MeanPooling)
    with torch.no_grad():
        model.pooling.layer.weight.copy_(2 * torch.eye(3))
        model.pooling.layer.bias.fill_(0.3)
        model.output.weight[3] = torch.tensor([1.0, -1, 0.5])
        model.output.weight[1] = torch.tensor([-1.0, 2, -0.5])
    classes = torch.tensor([3, 1])
    maps = map_class(model, IMAGES, classes)
    values = model.pooling.transform(model.read_places(IMAGES))
    for found, value, k in zip(maps, values, classes, strict=True):
        parts = value @ model.output.weight[k]
        assert parts.max() > 0
        logit = model.output(value.mean(0))[k]
        torch.testing.assert_close(parts.mean() + model.output.bias[k], logit)
        torch.testing.assert_close(found, parts.relu() / parts.relu().sum())


def test_mass_in_boxes_counts_parts_of_cells():
    weights = torch.tensor([[[0.4, 0.1], [0.2, 0.3]]]).repeat(4, 1, 1)
    boxes = torch.tensor([[0, 0, 8, 8], [0, 0, 4, 4], [2, 0, 4, 8], [3, 3, 5, 5]])
    found = measure_mass_in_boxes(weights, boxes, 8)
    torch.testing.assert_close(found, torch.tensor([1, 0.4, 0.25, 1 / 16]))


@pytest.mark.refusal
def test_a_box_outside_the_image_is_refused():
    with pytest.raises(ValueError, match="between 0 and 8, not between 2 and 9"):
        measure_mass_in_boxes(torch.ones(1, 2, 2), torch.tensor([[2, 3, 4, 9]]), 8)
