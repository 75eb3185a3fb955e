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
    clip, C model width, D width of query and key, E value width; G sequences
    of S tokens each after folding
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
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


class JointAttention(nn.Module):
    """Multi-head attention of every patch to all patches of all frames.

    The two variants override `fold` and `unfold`: which patches form one
    sequence.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads)

    def fold(self, x: Float[Tensor, "B T N C"]) -> Float[Tensor, "G S C"]:
        """Return the sequences within which queries and keys are compared."""
        return x.flatten(1, 2)

    def unfold(
        self, y: Float[Tensor, "G S C"], frames: int, patches: int
    ) -> Float[Tensor, "B T N C"]:
        """Return sequences as clips again: the inverse of `fold`."""
        return y.unflatten(1, (frames, patches))

    def forward(
        self, x: Float[Tensor, "B T N C"], need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the output (B, T, N, C), and the weights if requested.

        Weights are (B, H, T · N, T · N); over space (B · T, H, N, N); over time
        (B · N, H, T, T).
        """
        _, frames, patches, _ = x.shape
        folded = self.fold(x)
        if not need_weights:
            return self.unfold(self.attention(folded), frames, patches)
        output, weights = self.attention(folded, need_weights=True)
        return self.unfold(output, frames, patches), weights


class SpaceAttention(JointAttention):
    """Multi-head attention of every patch to the patches of its own frame."""

    def fold(self, x: Tensor) -> Tensor:
        """Return one sequence for each frame: (B · T, N, C)."""
        return x.flatten(0, 1)

    def unfold(self, y: Tensor, frames: int, patches: int) -> Tensor:
        """Return the frames' sequences as clips again."""
        return y.unflatten(0, (-1, frames))


class TimeAttention(JointAttention):
    """Multi-head attention of every patch to those at its place over time."""

    def fold(self, x: Tensor) -> Tensor:
        """Return one sequence for each place: (B · N, T, C)."""
        return x.transpose(1, 2).flatten(0, 1)

    def unfold(self, y: Tensor, frames: int, patches: int) -> Tensor:
        """Return the places' sequences as clips again."""
        return y.unflatten(0, (-1, patches)).transpose(1, 2)
