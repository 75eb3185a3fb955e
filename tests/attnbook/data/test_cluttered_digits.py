"""A canvas has one whole digit in its box, and pieces of others elsewhere."""

import pytest
import torch

from attnbook.data.digits import (
    CANVAS,
    draw_cluttered_digits,
    find_box,
    load_digits,
)


def draw(count, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return draw_cluttered_digits(*load_digits("test"), count, rng)


def test_the_smallest_box_touches_light_pixels_on_each_side():
    image = torch.zeros(6, 7, dtype=torch.uint8)
    image[2, 3] = image[4, 1] = 200
    assert find_box(image) == (2, 1, 5, 4)


@pytest.mark.refusal
def test_a_black_image_has_no_box():
    with pytest.raises(ValueError, match="6 by 7 pixels has no pixel"):
        find_box(torch.zeros(6, 7, dtype=torch.uint8))


def test_the_digit_is_in_its_box():
    images, labels = load_digits("test")
    drawn = draw(20)
    assert drawn.images.shape == (20, 1, CANVAS, CANVAS)
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
        assert any(found)


def test_there_is_clutter_outside_the_boxes():
    drawn = draw(20)
    for canvas, box in zip(drawn.images, drawn.boxes.tolist(), strict=True):
        rest = canvas[0].clone()
        rest[box[0] : box[2], box[1] : box[3]] = 0.0
        assert (rest > 0.7).sum() > 20
