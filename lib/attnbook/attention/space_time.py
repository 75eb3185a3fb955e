"""Attention over the patches of a clip: joint, over space, and over time.

Joint attention compares every patch of every frame with every other. Attention
over space compares the patches of one frame; attention over time compares the
patches at one place in all frames. Factorized attention is one after the other.

Source: ViViT of Arnab et al. (2021), section 3.3 (model 1: joint; model 3:
    factorized, space first), https://arxiv.org/abs/2103.15691; TimeSformer of
    Bertasius, Wang and Torresani (2021), section 3 ("divided" attention, time
    first), https://arxiv.org/abs/2102.05095. Departure: no classification
    token.
Axes: B batch, H heads, T frames, N patches of a frame, S = T · N tokens of a
    clip, D width of query and key, E value width
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend


def attend_over_space(
    query: Float[Tensor, "*B T N D"],
    key: Float[Tensor, "*B T N D"],
    value: Float[Tensor, "*B T N E"],
) -> Float[Tensor, "*B T N E"]:
    """Return attention of every patch to the patches of its own frame."""
    return attend(query, key, value)


def attend_over_time(
    query: Float[Tensor, "*B T N D"],
    key: Float[Tensor, "*B T N D"],
    value: Float[Tensor, "*B T N E"],
) -> Float[Tensor, "*B T N E"]:
    """Return attention of every patch to those at its place in all frames."""
    q, k, v = (x.transpose(-3, -2) for x in (query, key, value))  # (*B, N, T, D)
    return attend(q, k, v).transpose(-3, -2)


def same_frame_mask(
    frames: int, patches: int, device: torch.device | str | None = None
) -> Bool[Tensor, "S S"]:
    """Return which of the T · N tokens are in the same frame.

    Joint attention with this mask is attention over space.
    """
    frame = torch.arange(frames * patches, device=device) // patches
    return frame[:, None] == frame


def same_place_mask(
    frames: int, patches: int, device: torch.device | str | None = None
) -> Bool[Tensor, "S S"]:
    """Return which of the T · N tokens are at the same place of their frames.

    Joint attention with this mask is attention over time.
    """
    place = torch.arange(frames * patches, device=device) % patches
    return place[:, None] == place


def count_joint_scores(frames: int, patches: int) -> int:
    """Return the scores of one head of joint attention: (T · N)²."""
    return (frames * patches) ** 2


def count_factorized_scores(frames: int, patches: int) -> int:
    """Return the scores of one head over space and over time: TN² + NT²."""
    return frames * patches**2 + patches * frames**2
