"""The contrastive loss and its encoders."""

import math
from functools import partial

import torch

from attnbook.models.vision import (
    COLDEST,
    TEMPERATURE,
    ContrastiveModel,
    ConvolutionEncoder,
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
