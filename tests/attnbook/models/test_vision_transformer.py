"""The Vision Transformer reads patches, and knows their order by encodings."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.models.recurrent import count_parameters
from attnbook.models.vision import (
    ConvolutionalFeatures,
    FlatClassifier,
    NoEncoding,
    VisionTransformer,
    cut_patches,
    join_patches,
)

IMAGES = torch.rand(3, 2, 6, 6, generator=torch.Generator().manual_seed(0))
ORDER = torch.tensor([2, 0, 1, 3])


def build(**more):
    sizes = {"size": 6, "patch": 3, "width": 8, "heads": 2, "hidden": 10}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VisionTransformer(**sizes, channels=2, classes=5, **more)


def shuffle(images):
    return join_patches(cut_patches(images, 3)[:, ORDER], 6, 6, 3)


def test_position_zero_is_the_class_token():
    model = build()
    x = model.embed(IMAGES)
    assert x.shape == (3, 5, 8)
    table = model.positions.table
    torch.testing.assert_close(x[1, 0], model.class_token + table[0])
    patch = model.project(IMAGES[1, :, :3, 3:].flatten()) + table[2]
    torch.testing.assert_close(x[1, 2], patch)


def test_without_positions_the_order_of_the_patches_is_not_known():
    model = build(encoding=NoEncoding)
    torch.testing.assert_close(model(shuffle(IMAGES)), model(IMAGES))
    assert (build()(shuffle(IMAGES)) - build()(IMAGES)).abs().max() > 1e-4


def test_a_permutation_of_patches_and_positions_changes_nothing():
    model, moved = build(), build()
    with torch.no_grad():
        moved.positions.table[1:] = model.positions.table[1:][ORDER]
    torch.testing.assert_close(moved(shuffle(IMAGES)), model(IMAGES))


def test_a_gradient_reaches_every_parameter():
    model = build()
    F.cross_entropy(model(IMAGES), torch.tensor([0, 1, 2])).backward()
    assert all(x.grad.abs().max() > 0 for x in model.parameters())


@pytest.mark.refusal
def test_patches_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"6 by 6 pixels do not divide .* 4 by"):
        VisionTransformer(size=6, patch=4)


def test_the_convolutional_network_is_pytorchs_layers():
    model = FlatClassifier((2, 3, 4), (2, 1), size=6, classes=5)
    first, _, second, _ = model.features
    x = F.relu(F.conv2d(IMAGES, first.weight, first.bias, 2, 1))
    x = F.relu(F.conv2d(x, second.weight, second.bias, 1, 1))
    assert x.shape == (3, 4, 3, 3)
    torch.testing.assert_close(model(IMAGES), model.output(x.flatten(1)))
    wanted = 3 * (18 + 1) + 4 * (27 + 1) + 5 * (36 + 1)
    assert count_parameters(model) == wanted


@pytest.mark.refusal
def test_each_layer_needs_a_stride():
    with pytest.raises(ValueError, match=r"2 layers need as many .* not 1"):
        ConvolutionalFeatures((1, 2, 3), (2,))
