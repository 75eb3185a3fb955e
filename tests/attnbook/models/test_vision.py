"""Models of images and clips: patches, pooling, image-text pairs."""

import math

import pytest
import torch
import torch.nn.functional as F

from attnbook.models import frame_pooling
from attnbook.models.recurrent import count_parameters
from attnbook.models.vision import (
    COLDEST,
    TEMPERATURE,
    ContrastiveModel,
    ConvolutionalFeatures,
    ConvolutionEncoder,
    FlatClassifier,
    MaxPooling,
    MeanPooling,
    NoEncoding,
    PooledClassifier,
    SpatialAttentionPooling,
    VisionTransformer,
    contrastive_loss,
    cut_patches,
    join_patches,
    map_class,
    measure_mass_in_boxes,
    rank_pairs,
)

RNG = torch.Generator().manual_seed(0)
PIXELS = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def test_patches_are_those_of_pytorch_and_join_again():
    for size in (1, 2):
        patches = cut_patches(PIXELS, size)
        wanted = F.unfold(PIXELS, size, stride=size).transpose(1, 2)
        assert torch.equal(patches, wanted)
        assert torch.equal(join_patches(patches, 4, 6, size), PIXELS)
    assert cut_patches(PIXELS.byte(), 2).dtype is torch.uint8


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cut_patches(PIXELS, 0), "4 by 6 pixels do not .* of 0 by 0"),
        (lambda: cut_patches(PIXELS, 4), "4 by 6 pixels do not .* of 4 by 4"),
        (
            lambda: join_patches(cut_patches(PIXELS, 2), 4, 8, 2),
            "4 by 8 pixels have 8 patches .* not 6",
        ),
        (
            lambda: join_patches(cut_patches(PIXELS, 2)[..., 1:], 4, 6, 2),
            "a multiple of 4 values, not 11",
        ),
        (lambda: VisionTransformer(size=6, patch=4), "6 by 6 pixels do not"),
        (
            lambda: ConvolutionalFeatures((1, 2, 3), (2,)),
            "2 layers need as many .* not 1",
        ),
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


ORDER = torch.tensor([2, 0, 1, 3])


def build(**more):
    sizes = {"size": 6, "patch": 3, "width": 8, "heads": 2, "hidden": 10}
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


def test_the_convolutional_network_is_pytorchs_layers():
    model = FlatClassifier((2, 3, 4), (2, 1), size=6, classes=5)
    first, _, second, _ = model.features
    x = F.relu(F.conv2d(IMAGES, first.weight, first.bias, 2, 1))
    x = F.relu(F.conv2d(x, second.weight, second.bias, 1, 1))
    assert x.shape == (3, 4, 3, 3)
    torch.testing.assert_close(model(IMAGES), model.output(x.flatten(1)))
    wanted = 3 * (18 + 1) + 4 * (27 + 1) + 5 * (36 + 1)
    assert count_parameters(model) == wanted


FEATURES = torch.randn(2, 5, 3, generator=RNG)


def build_pooled(pooling):
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


def test_mean_and_maximum_pool_the_same_layer():
    mean, largest = MeanPooling(3), MaxPooling(3)
    largest.load_state_dict(mean.state_dict())
    values = mean.layer(FEATURES).relu()
    torch.testing.assert_close(mean(FEATURES), values.mean(1))
    torch.testing.assert_close(largest(FEATURES), values.amax(1))


def test_all_poolings_have_equally_many_parameters():
    numbers = {
        count_parameters(build_pooled(x))
        for x in (SpatialAttentionPooling, MeanPooling, MaxPooling)
    }
    assert numbers == {3 * 10 + 3 * 3 + 3 + 4 * 4}


def test_a_class_map_is_the_share_of_the_positive_contributions():
    model = build_pooled(MeanPooling)
    with torch.no_grad():
        model.pooling.layer.weight.copy_(2 * torch.eye(3))
        model.pooling.layer.bias.fill_(0.3)
        model.output.weight[3] = torch.tensor([1.0, -1, 0.5])
        model.output.weight[1] = torch.tensor([-1.0, 2, -0.5])
    classes = torch.tensor([3, 1])
    images = torch.randn(2, 1, 6, 8, generator=RNG)
    maps = map_class(model, images, classes)
    values = model.pooling.transform(model.read_places(images))
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
    assert torch.equal(frame_pooling.MeanPooling()(features), torch.full((2, 5), 0.2))
    assert torch.equal(frame_pooling.LastFrame()(features), torch.eye(5)[[-1] * 2])


def test_the_loss_is_the_mean_of_both_directions():
    similarity = torch.tensor([[2.0, 0.0], [1.0, 3.0]])
    rows = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-2))
    columns = math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-3))
    torch.testing.assert_close(
        contrastive_loss(similarity), torch.tensor((rows + columns) / 4)
    )


def test_ranks_count_what_is_at_least_as_similar_as_the_pair():
    similarity = torch.tensor([[3.0, 1, 2], [5, 4, 4], [1, 1, 1]])
    assert rank_pairs(similarity).tolist() == [0, 2, 2]


def test_similarities_are_cosines_divided_by_a_temperature_that_is_bounded():
    model = ContrastiveModel(ConvolutionEncoder(8, (4, 5, 6)), 5, 8).eval()
    pictures = torch.rand(3, 3, 48, 48, generator=RNG)
    names = torch.tensor([[0, 1], [2, 2], [3, 1]])
    images, words = model.encoder(pictures), model.embedding(names).mean(1)
    cosines = torch.cosine_similarity(images[:, None], words, dim=-1)
    torch.testing.assert_close(model(pictures, names), cosines / TEMPERATURE)
    with torch.no_grad():
        model.log_scale.fill_(100.0)
    torch.testing.assert_close(
        model(pictures, names), cosines / COLDEST, rtol=1e-4, atol=1e-4
    )
