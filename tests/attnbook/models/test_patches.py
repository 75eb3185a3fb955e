"""Patches are cut row by row, channel first, and joined again."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.models.vision import cut_patches, join_patches

IMAGES = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)


def test_a_patch_is_channel_then_row_then_column():
    patches = cut_patches(IMAGES, 2)
    assert patches.shape == (2, 6, 12)
    for number, (row, column) in enumerate(
        [(0, 0), (0, 2), (0, 4), (2, 0), (2, 2), (2, 4)]
    ):
        part = IMAGES[1, :, row : row + 2, column : column + 2]
        assert torch.equal(patches[1, number], part.flatten())


@pytest.mark.parametrize("size", [1, 2])
def test_patches_are_those_of_pytorch(size):
    wanted = F.unfold(IMAGES, size, stride=size).transpose(1, 2)
    assert torch.equal(cut_patches(IMAGES, size), wanted)


@pytest.mark.parametrize("size", [1, 2])
def test_joining_inverts_cutting(size):
    assert torch.equal(join_patches(cut_patches(IMAGES, size), 4, 6, size), IMAGES)


def test_pixels_of_eight_bits_stay_what_they_are():
    assert cut_patches(IMAGES.byte(), 2).dtype is torch.uint8


def test_a_gradient_reaches_each_pixel_at_its_place():
    images = IMAGES.clone().requires_grad_()
    upstream = torch.randn((2, 6, 12), generator=torch.Generator().manual_seed(0))
    cut_patches(images, 2).backward(upstream)
    assert torch.equal(images.grad, join_patches(upstream, 4, 6, 2))


@pytest.mark.refusal
@pytest.mark.parametrize("size", [0, 3, 4])
def test_images_that_do_not_divide_are_refused_with_both_values(size):
    message = f"4 by 6 pixels do not divide into patches of {size} by {size}"
    with pytest.raises(ValueError, match=message):
        cut_patches(IMAGES, size)


@pytest.mark.refusal
def test_patches_of_other_images_are_refused():
    patches = cut_patches(IMAGES, 2)
    with pytest.raises(ValueError, match=r"4 by 8 pixels have 8 patches .* not 6"):
        join_patches(patches, 4, 8, 2)
    with pytest.raises(ValueError, match="a multiple of 4 values, not 11"):
        join_patches(patches[..., 1:], 4, 6, 2)
