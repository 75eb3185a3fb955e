"""The contrastive loss, its encoders, and a text model that reads a grid."""

import math
from functools import partial

import pytest
import torch

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.models.vision import (
    COLDEST,
    TEMPERATURE,
    ContrastiveModel,
    ConvolutionEncoder,
    GridReader,
    UniformAttention,
    contrastive_loss,
    rank_pairs,
)

close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
RNG = torch.Generator().manual_seed(0)
IMAGES = torch.rand(3, 3, 48, 48, generator=RNG)
NAMES = torch.tensor([[0, 1], [2, 2], [3, 1]])


def make_model():
    torch.manual_seed(0)
    return ContrastiveModel(ConvolutionEncoder(8, (4, 5, 6)), 5, 8).eval()


def make_reader(attention=MultiHeadAttention):
    model = make_model()
    return GridReader(model.encoder, model.embedding, 4, attention).eval()


def test_the_loss_is_the_mean_of_both_directions():
    similarity = torch.tensor([[2.0, 0.0], [1.0, 3.0]])
    rows = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-2))
    columns = math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-3))
    close(contrastive_loss(similarity), torch.tensor((rows + columns) / 4))
    close(contrastive_loss(similarity.T), contrastive_loss(similarity))


def test_equal_similarities_cost_the_logarithm_of_the_batch():
    close(contrastive_loss(torch.ones(7, 7)), torch.tensor(math.log(7)))


def test_ranks_count_what_is_at_least_as_similar_as_the_pair():
    similarity = torch.tensor([[3.0, 1, 2], [5, 4, 4], [1, 1, 1]])
    assert rank_pairs(similarity).tolist() == [0, 2, 2]


def test_a_position_of_the_feature_map_reads_its_place():
    encoder = make_model().encoder
    one = encoder.read_map(IMAGES)
    assert one.shape == (3, 36, 6)
    changed = IMAGES.clone()
    changed[:, :, 40:, 40:] = 0  # the last of 6 by 6 places
    different = (encoder.read_map(changed) != one).any(-1).any(0).view(6, 6)
    assert different[5, 5]
    assert not different[:4].any()
    assert not different[:, :4].any()
    close(encoder(IMAGES), encoder.output(one.mean(1)))


def test_similarities_are_cosines_divided_by_a_temperature_that_is_bounded():
    model = make_model()
    images, names = model.encoder(IMAGES), model.embedding(NAMES).mean(1)
    cosines = torch.cosine_similarity(images[:, None], names, dim=-1)
    close(model(IMAGES, NAMES), cosines / TEMPERATURE)
    with torch.no_grad():
        model.log_scale.fill_(100.0)
    close(model(IMAGES, NAMES), cosines / COLDEST)


def test_with_a_closed_gate_the_image_changes_no_bit():
    reader = make_reader()
    image = reader.read_image(IMAGES)
    other = image.flip(0)
    assert torch.equal(reader(image, NAMES)[0], reader(other, NAMES)[0])
    with torch.no_grad():
        reader.cross.gate.fill_(0.5)
    logits, weights = reader(image, NAMES)
    assert not torch.equal(logits, reader(other, NAMES)[0])
    assert weights.shape == (3, 36)
    close(weights.sum(1), torch.ones(3))


def test_uniform_attention_averages_the_image():
    reader = make_reader(UniformAttention)
    _, weights = reader(reader.read_image(IMAGES), NAMES)
    close(weights, torch.full((3, 36), 1 / 36))


def test_only_the_layers_that_join_words_and_image_are_trained():
    trained = {
        name.split(".")[0]
        for name, x in make_reader().named_parameters()
        if x.requires_grad
    }
    assert trained == {"cross", "block", "norm", "output"}


def test_at_the_start_scores_compare_normalized_words_and_positions():
    reader = make_reader()
    image = reader.read_image(IMAGES)
    words = torch.layer_norm(reader.embedding(NAMES), [8])
    scores = words @ image.mT / 8**0.5
    close(reader(image, NAMES)[1], scores.softmax(-1).mean(1))


@pytest.mark.parametrize("attention", [MultiHeadAttention, UniformAttention])
def test_the_gate_receives_a_gradient_from_the_start(attention):
    reader = make_reader(attention)
    logits, _ = reader(reader.read_image(IMAGES), NAMES)
    logits[:, 0].sum().backward()
    assert reader.cross.gate.grad.abs() > 0
