"""A classifier of clips that pools the features of the frames.

Source: temporal attention, a weighted mean of the frames' features: Yao et al.
    (2015), "Describing videos by exploiting temporal structure",
    https://arxiv.org/abs/1502.08029. Departures: one learned query instead of a
    decoder's state; scaled dot products as scores.
Axes: B batch, T frames, H and W height and width of a frame, C model width,
    K classes
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.scaled_dot_product import attention_weights


class FrameEncoder(nn.Module):
    """Two convolutions and one linear layer; the side of a frame is a multiple of 4."""

    def __init__(self, size: int, width: int):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.output = nn.Linear(16 * (size // 4) ** 2, width)

    def forward(self, frames: Float[Tensor, "B T H W"]) -> Float[Tensor, "B T C"]:
        """Return the features of every frame, each computed from it alone."""
        x = frames.flatten(0, 1)[:, None]  # (B · T, 1, H, W)
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.output(x.flatten(1)).unflatten(0, frames.shape[:2])


class TemporalAttentionPooling(nn.Module):
    """Weights of the frames: one learned query, the features are the keys."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, width))

    def forward(self, features: Float[Tensor, "B T C"]) -> Float[Tensor, "B T"]:
        """Return the weight of each frame; a clip's weights sum to 1."""
        return attention_weights(self.query, features)[:, 0]


class ClipClassifier(nn.Module):
    """A weighted mean of the frames' features, and a linear layer.

    `encoder` makes features (B, T, C) of frames (B, T, H, W), `pooling` the weights
    (B, T) of the frames.
    """

    def __init__(
        self, encoder: nn.Module, pooling: nn.Module, width: int, classes: int
    ):
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.output = nn.Linear(width, classes)

    def forward(
        self, frames: Float[Tensor, "B T H W"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B T"]]:
        """Return the logits of the classes, and the weights of the frames."""
        features = self.encoder(frames)
        weights = self.pooling(features)
        context = (weights[:, None] @ features)[:, 0]  # (B, C)
        return self.output(F.relu(context)), weights
