"""The digits are what their labels say, and train and test are disjoint."""

import pytest
import torch

from attnbook.data.digits import load_digits


@pytest.mark.parametrize(("split", "number"), [("train", 2000), ("test", 500)])
def test_every_digit_is_in_a_split_equally_often(split, number):
    images, labels = load_digits(split)
    assert images.shape == (number, 28, 28)
    assert images.dtype is torch.uint8
    assert labels.shape == (number,)
    assert labels[:100].bincount().tolist() == [10] * 10
    assert labels.bincount().tolist() == [number // 10] * 10


def test_a_nearest_mean_of_the_training_images_finds_most_labels():
    """Labels that belong to other images would give about one in ten."""
    images, labels = load_digits()
    means = torch.stack([images[labels == x].float().mean(dim=0) for x in range(10)])
    tests, wanted = load_digits("test")
    distance = torch.cdist(tests.flatten(1).float(), means.flatten(1))
    assert (distance.argmin(dim=1) == wanted).float().mean() > 0.75


@pytest.mark.refusal
def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match=r"no split 'valid', only \['train'"):
        load_digits("valid")
