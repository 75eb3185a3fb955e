"""Handwritten digits, digits among clutter, and clips of a moving digit."""

import pytest
import torch

from attnbook.data.digits import (
    CANVAS,
    draw_cluttered_digits,
    draw_which_digit,
    find_box,
    load_digits,
    shrink_digits,
)

DIGITS = torch.rand(7, 5, 5, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(7)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_digit_is_in_a_split_equally_often():
    for split, number in (("train", 2000), ("test", 500)):
        images, labels = load_digits(split)
        assert images.shape == (number, 28, 28) and images.dtype == torch.uint8
        assert labels[:100].bincount().tolist() == [10] * 10
        assert labels.bincount().tolist() == [number // 10] * 10


def test_a_nearest_mean_of_the_training_images_finds_most_labels():
    """Labels that belong to other images would give about one in ten."""
    images, labels = load_digits()
    means = torch.stack([images[labels == x].float().mean(dim=0) for x in range(10)])
    tests, wanted = load_digits("test")
    distance = torch.cdist(tests.flatten(1).float(), means.flatten(1))
    assert (distance.argmin(dim=1) == wanted).float().mean() > 0.75


def test_digits_are_light_on_black_and_neither_mirrored_nor_upside_down():
    images, labels = load_digits()
    assert 0 < images.float().mean() < 60 and images.max() == 255
    seven = images[labels == 7].float().mean(0)
    assert seven[:14].sum() > 1.1 * seven[14:].sum()  # the bar is at the top
    foot = seven[20:].sum(0)  # and the stroke ends to the left of the middle
    assert (foot * torch.arange(28)).sum() / foot.sum() < 13


def test_the_digit_is_whole_in_its_box_and_clutter_is_elsewhere():
    images, labels = load_digits("test")
    drawn = draw_cluttered_digits(images, labels, 20, rng())
    assert drawn.images.shape == (20, 1, CANVAS, CANVAS)
    lighter = 0
    for canvas, label, box in zip(*drawn, strict=True):
        top, left, bottom, right = box.tolist()
        assert 0 <= top < bottom <= CANVAS and 0 <= left < right <= CANVAS
        part = (canvas[0, top:bottom, left:right] * 255).round()
        found = []
        for image in images[labels == label]:
            first, start, last, end = find_box(image)
            digit = image[first:last, start:end]
            if digit.shape == part.shape:
                found.append(bool((digit <= part).all()))
                lighter += int(found[-1] and bool((digit < part).any()))
        assert any(found)
        rest = canvas[0].clone()
        rest[top:bottom, left:right] = 0.0
        assert (rest > 0.7).sum() > 20
    assert lighter  # where two overlap, the lighter pixel counts


def test_a_shrunk_image_has_the_means_of_squares():
    images = torch.arange(2 * 4 * 6, dtype=torch.uint8).reshape(2, 4, 6)
    found = shrink_digits(images, 2)
    assert found.shape == (2, 2, 3)
    wanted = images[1, 2:4, 4:6].float().mean() / 255
    torch.testing.assert_close(found[1, 1, 2], wanted)


def test_readable_frames_show_the_digit_and_the_others_its_pixels():
    clips = draw_which_digit(DIGITS, LABELS, 6, rng(1), frames=5, size=12)
    assert (clips.readable.sum(1) == 2).all()
    for b in range(6):
        digit = DIGITS[clips.label[b]]
        for t in range(5):
            row, column = clips.position[b, t].tolist()
            assert 0 <= row <= 7 and 0 <= column <= 7
            square = slice(row, row + 5), slice(column, column + 5)
            shown = clips.frames[b, t][square]
            assert torch.equal(shown, digit) == bool(clips.readable[b, t])
            assert torch.equal(shown.flatten().sort()[0], digit.flatten().sort()[0])
            wanted = torch.zeros(12, 12, dtype=torch.bool)
            wanted[square] = True
            assert torch.equal(clips.inside[b, t], wanted)
    assert (clips.frames[~clips.inside] == 0).all()
    step = clips.position.diff(dim=1).abs()
    assert step.amax() == 2 and (step[:, :1] == step[:, 1:2]).any()


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_digits("valid"), r"no split 'valid', only \['train'"),
        (lambda: shrink_digits(torch.zeros(1, 6, 8).byte(), 4), "6 by 8 .* of 4,"),
        (
            lambda: draw_which_digit(DIGITS, LABELS, 2, rng(), frames=5, readable=6),
            "6 readable frames .* clips of 5 frames",
        ),
    ],
)
def test_what_is_not_possible_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
