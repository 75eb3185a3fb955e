"""The controls of the Vision Transformer, and what was recorded of it."""

import pytest
import torch

from attnbook.models.vision_transformer import VisionTransformer
from attnbook.records import read_record
from workshop.experiments import image_training
from workshop.experiments import vision_digits as study

PIXELS = torch.arange(28 * 28.0).view(1, 1, 28, 28)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(study, "STEPS", 3)
    monkeypatch.setattr(study, "SIZES", (40, 60))
    monkeypatch.setattr(study, "SHUFFLED_SIZES", (60,))


def test_one_permutation_moves_the_patches_of_all_images():
    order = torch.arange(16).flip(0)
    moved = study.shuffle_patches(PIXELS.repeat(2, 1, 1, 1), order)
    assert torch.equal(moved[1, :, :7, 7:14], PIXELS[0, :, 21:, 14:21])
    assert torch.equal(study.shuffle_patches(moved, order)[:1], PIXELS)


def test_each_image_can_have_a_permutation_of_its_own():
    orders = study.draw_order(2, 16, seed=0)
    assert sorted(orders[1].tolist()) == [*range(16)]
    both = study.shuffle_patches(PIXELS.repeat(2, 1, 1, 1), orders)
    for image, order in zip(both, orders, strict=True):
        assert torch.equal(image[None], study.shuffle_patches(PIXELS, order))
    assert not torch.equal(both[0], both[1])


def test_the_most_important_patches_become_black():
    importance = torch.zeros(1, 16)
    importance[0, [0, 5, 10, 15]] = 1.0
    erased = study.erase_patches(PIXELS + 1, importance)
    black = study.cut_patches(erased, study.PATCH).amax(-1)[0] == 0
    assert black.nonzero().flatten().tolist() == [0, 5, 10, 15]
    assert torch.equal(study.find_ink(erased)[0], ~black)
    assert PIXELS.max() == 28 * 28 - 1


def test_attention_of_the_class_token_is_a_share():
    model = image_training.build_with_seed(VisionTransformer, 0)
    weights = study.read_class_attention(model, study.load_images("test")[0][:5])
    assert weights.shape == (5, 16)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))


@pytest.mark.long
def test_a_seed_gives_every_row_and_again_the_same(quick):
    rows, model = study.run_seed(0)
    assert [(x["model"], x["size"], x["shuffled"]) for x in rows] == [
        *(("cnn", 40, False), ("vit", 40, False)),
        *(("cnn", 60, False), ("vit", 60, False)),
        *(("vit", 60, True), ("cnn", 60, True)),
        ("no positions", 60, False),
    ]
    again, _ = study.run_model("vit", 60, 0)
    assert again["accuracy"] == rows[3]["accuracy"]
    assert rows[-1]["mixed_accuracy"] == pytest.approx(rows[-1]["accuracy"], abs=0.005)
    assert len(rows[3]["attention"]["erased"]) == 4
    shown = study.describe_examples(model)
    assert [x["label"] for x in shown] == [3, 2]


def list_recorded(model, size, shuffled=False):
    rows = read_record("vision_digits")["results"]["rows"]
    found = [
        x
        for x in rows
        if (x["model"], x["size"], x["shuffled"]) == (model, size, shuffled)
    ]
    assert [x["seed"] for x in found] == [*study.SEEDS]
    return found


def get_accuracies(*args):
    return [x["accuracy"] for x in list_recorded(*args)]


def test_the_record_is_that_of_these_models():
    record = read_record("vision_digits")
    assert record["seeds"] == [*study.SEEDS]
    assert (record["steps"], record["rates"]) == (study.STEPS, study.RATES)
    numbers = record["results"]["parameters"]
    assert numbers == {
        name: study.count_parameters(build()) for name, build in study.MODELS.items()
    }
    assert abs(numbers["vit"] / numbers["cnn"] - 1) < 0.03
    assert len(record["results"]["rows"]) == 39


@pytest.mark.parametrize("size", study.SIZES)
def test_the_recorded_convolutional_network_is_better_at_every_size(size):
    ours, theirs = get_accuracies("vit", size), get_accuracies("cnn", size)
    assert min(theirs) > max(ours) + 0.04


def test_a_recorded_permutation_only_harms_the_convolutional_network():
    for size in study.SHUFFLED_SIZES:
        plain, permuted = (get_accuracies("cnn", size, x) for x in (False, True))
        assert min(plain) > max(permuted)
        assert min(permuted) > max(get_accuracies("vit", size, True))
        plain, permuted = (get_accuracies("vit", size, x) for x in (False, True))
        assert sum(permuted) > sum(plain)


def test_recorded_patches_without_positions_have_no_order():
    for row in list_recorded("no positions", 2000):
        assert row["mixed_accuracy"] == row["accuracy"] < 0.81
    for row in list_recorded("vit", 2000):
        assert row["mixed_accuracy"] < 0.27 < 0.89 < row["accuracy"]


def test_recorded_class_token_prefers_patches_that_matter():
    for row in list_recorded("vit", 2000):
        found = row["attention"]
        chance = found["share_of_patches_with_ink"]
        assert abs(found["untrained_mass_on_ink"] - chance) < 0.04
        assert found["mass_on_ink"] > chance + 0.15
        erased = found["erased"]
        assert erased["lightest"] < erased["most attended"]
        assert erased["most attended"] < erased["random"] - 0.15
        assert erased["random"] < erased["least attended"] - 0.05
