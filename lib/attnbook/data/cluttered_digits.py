"""A digit at a random place among pieces of other digits.

Source: the cluttered translated MNIST of Mnih et al. (2014), section 4.1,
    https://arxiv.org/abs/1406.6247. Departures: a smaller canvas; the true box
    of each digit is kept.
Axes: B batch, 4: top, left, bottom, right
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

CANVAS = 56  # pixels on each side
PIECE = 9  # pixels on each side of a piece of another digit
PIECES = 8
LEAST = 200  # a piece must have a pixel that is at least so light


class ClutteredDigits(NamedTuple):
    """Canvases, and where the digit is on each of them.

    Attributes:
        images: (B, 1, 56, 56) pixels between 0 and 1.
        labels: (B,) the digit, from 0 to 9.
        boxes: (B, 4) the smallest box around the digit's pixels: its first row
            and column, and the row and column after its last.
    """

    images: Float[Tensor, "B 1 56 56"]
    labels: Int64[Tensor, "B"]
    boxes: Int64[Tensor, "B 4"]


def find_box(image: UInt8[Tensor, "H W"]) -> tuple[int, int, int, int]:
    """Return the smallest box around all pixels that are not black.

    Returns:
        first row, first column, the row and the column after the last.

    Raises:
        ValueError: if the image is black.
    """
    rows, columns = (image.any(dim).nonzero().flatten() for dim in (1, 0))
    if not len(rows):
        raise ValueError(
            f"an image of {image.shape[0]} by {image.shape[1]} pixels has no "
            "pixel that is not black"
        )
    return (
        int(rows[0]),
        int(columns[0]),
        int(rows[-1]) + 1,
        int(columns[-1]) + 1,
    )


def draw_cluttered_digits(
    images: UInt8[Tensor, "N H W"],
    labels: Int64[Tensor, "N"],
    count: int,
    rng: torch.Generator,
) -> ClutteredDigits:
    """Return canvases with one whole digit and `PIECES` pieces of others each.

    Where two of them overlap, the lighter pixel counts.

    Args:
        images: pixels from 0 to 255 of the digits to choose from, on the CPU.
        labels: of the images.
        count: B.
        rng: draws the digits and their places.
    """
    canvases = images.new_zeros((count, CANVAS, CANVAS))
    chosen = torch.randint(len(images), (count,), generator=rng)
    boxes = []
    for canvas, index in zip(canvases, chosen.tolist(), strict=True):
        for _ in range(PIECES):
            paste(canvas, draw_piece(images, rng), rng)
        top, left, bottom, right = find_box(images[index])
        digit = images[index, top:bottom, left:right]
        boxes.append(paste(canvas, digit, rng))
    return ClutteredDigits(
        canvases[:, None].float() / 255, labels[chosen], torch.tensor(boxes)
    )


def draw_piece(
    images: UInt8[Tensor, "N H W"], rng: torch.Generator
) -> UInt8[Tensor, "9 9"]:
    """Return a random square of a random digit that has light pixels."""
    while True:
        index = draw_below(len(images), rng)
        top, left = (draw_below(n - PIECE + 1, rng) for n in images.shape[1:])
        piece = images[index, top : top + PIECE, left : left + PIECE]
        if piece.max() >= LEAST:
            return piece


def paste(
    canvas: UInt8[Tensor, "56 56"],
    part: UInt8[Tensor, "_ _"],
    rng: torch.Generator,
) -> tuple[int, int, int, int]:
    """Put a part at a random place of the canvas, and return its box."""
    height, width = part.shape
    top, left = (draw_below(CANVAS - n + 1, rng) for n in (height, width))
    place = canvas[top : top + height, left : left + width]
    torch.maximum(place, part, out=place)
    return top, left, top + height, left + width


def draw_below(bound: int, rng: torch.Generator) -> int:
    """Return a random whole number from 0 to `bound` - 1."""
    return int(torch.randint(bound, (), generator=rng))
