"""Short clips of one moving digit, whose position is known in every frame.

The digit bounces off the borders, and it is readable in a few frames; in all
others, its pixels are shuffled, which keeps its brightness and its position.

Source: digits that move and bounce off the borders: Srivastava, Mansimov and
    Salakhutdinov (2015), "Unsupervised learning of video representations using
    LSTMs", https://arxiv.org/abs/1502.04681. Departures: one digit; shuffled
    frames.
Axes: B clips, T frames, H and W height and width of a frame, h and w of a
    shrunk image, D side of a digit, N images
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor


class Clips(NamedTuple):
    """Clips with what is known about them.

    Attributes:
        frames: (B, T, H, W) pixels from 0 (black) to 1.
        label: (B,) which digit it is.
        position: (B, T, 2) row and column of the digit's first pixel.
        inside: (B, T, H, W) whether a pixel belongs to the digit's square.
        readable: (B, T) whether a frame shows the digit as it is.
    """

    frames: Float[Tensor, "B T H W"]
    label: Int[Tensor, " B"]
    position: Int[Tensor, "B T 2"]
    inside: Bool[Tensor, "B T H W"]
    readable: Bool[Tensor, "B T"]

    def to(self, device: torch.device | str) -> "Clips":
        """Return the clips on a device."""
        return Clips(*(x.to(device) for x in self))


def shrink_digits(
    images: UInt8[Tensor, "B H W"], factor: int
) -> Float[Tensor, "B h w"]:
    """Return the images at 1 / factor of their size, from 0 to 1.

    A pixel is the mean of factor · factor pixels.

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


def bounce(
    start: Int[Tensor, "B 2"],
    velocity: Int[Tensor, "B 2"],
    frames: int,
    room: int,
) -> Int[Tensor, "B T 2"]:
    """Return the positions of a digit that turns back at the borders.

    Args:
        start: the position in the first frame, from 0 to `room`.
        velocity: pixels from one frame to the next, before the first bounce.
        frames: T.
        room: the last position that is within the frame, at least 1.
    """
    free = travel(start, velocity, frames) % (2 * room)
    return room - (free - room).abs()


def travel(
    start: Int[Tensor, "B 2"], velocity: Int[Tensor, "B 2"], frames: int
) -> Int[Tensor, "B T 2"]:
    """Return the positions of a digit that moves on without any border."""
    times = torch.arange(frames, device=start.device)
    return start[:, None] + times[:, None] * velocity[:, None]


def render_clips(
    digits: Float[Tensor, "B T D D"], position: Int[Tensor, "B T 2"], size: int
) -> Float[Tensor, "B T H W"]:
    """Return black frames with a digit at its position in each.

    What lies beyond a border is drawn at the opposite one.

    Args:
        digits: what each frame shows.
        position: row and column of its first pixel.
        size: the side of a frame.

    Raises:
        ValueError: if a digit is larger than the frame.
    """
    batch, times, side = digits.shape[:3]
    if side > size:
        raise ValueError(
            f"a digit of {side} by {side} pixels does not fit into a frame of "
            f"{size} by {size}"
        )
    steps = torch.arange(side, device=digits.device)
    rows, columns = ((position[..., i, None] + steps) % size for i in (0, 1))
    pixels = rows[..., :, None] * size + columns[..., None, :]  # (B, T, D, D)
    empty = digits.new_zeros(batch, times, size * size)
    drawn = empty.scatter(2, pixels.flatten(2), digits.flatten(2))
    return drawn.unflatten(2, (size, size))


def shuffle_pixels(
    digits: Float[Tensor, "B T D D"], rng: torch.Generator
) -> Float[Tensor, "B T D D"]:
    """Return each digit with its pixels in a random order of its own."""
    flat = digits.flatten(2)
    keys = torch.rand(flat.shape, generator=rng, device=rng.device)
    order = keys.argsort(-1).to(flat.device)
    return flat.gather(2, order).unflatten(2, digits.shape[2:])


def draw_readable_frames(
    count: int, frames: int, readable: int, rng: torch.Generator
) -> Bool[Tensor, "B T"]:
    """Return True for randomly chosen frames, equally many in every clip.

    Raises:
        ValueError: if more frames should be readable than there are, or none.
    """
    if not 1 <= readable <= frames:
        raise ValueError(
            f"{readable} readable frames are not possible in clips of {frames} "
            "frames: at least 1, at most all of them"
        )
    keys = torch.rand(count, frames, generator=rng, device=rng.device)
    return keys.argsort(1).argsort(1) < readable


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
        size: the side of a frame.
        readable: frames that show the digit as it is.

    Raises:
        ValueError: if a digit is larger than the frame, or that many frames
            cannot be readable.
    """
    by_rng: dict[str, Any] = {"generator": rng, "device": rng.device}
    chosen = torch.randint(len(digits), (count,), **by_rng)
    shown = draw_readable_frames(count, frames, readable, rng)
    room = max(size - digits.shape[-1], 1)
    start = torch.randint(room + 1, (count, 2), **by_rng)
    velocity = torch.randint(-2, 3, (count, 2), **by_rng)
    position = bounce(start, velocity, frames, room)
    own = digits.to(rng.device)[chosen][:, None].expand(-1, frames, -1, -1)
    seen = torch.where(shown[..., None, None], own, shuffle_pixels(own, rng))
    return Clips(
        render_clips(seen, position, size),
        labels.to(rng.device)[chosen],
        position,
        render_clips(torch.ones_like(seen), position, size) > 0,
        shown,
    )
