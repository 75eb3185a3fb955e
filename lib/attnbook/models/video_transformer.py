"""Small models of video: pooling of frames, attention over space and time.

Source: temporal attention, a weighted mean of the frames' features: Yao et al.
    (2015), "Describing videos by exploiting temporal structure",
    https://arxiv.org/abs/1502.08029. Departures: one learned query instead of a
    decoder's state; scaled dot products as scores. Attention over space and
    time: ViViT of Arnab et al. (2021), section 3.3, models 1 and 3,
    https://arxiv.org/abs/2103.15691; attention over space alone is a baseline
    of Bertasius, Wang and Torresani (2021), section 3,
    https://arxiv.org/abs/2102.05095. Departures: a block has two attentions in
    every model, so that all have equally many parameters; no classification
    token.
Axes: B batch, T frames, H and W height and width of a frame, N patches of a
    frame, C model width, K classes, P pixels of a patch
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.scaled_dot_product import attention_weights
from attnbook.attention.space_time import JointAttention, SpaceAttention, TimeAttention
from attnbook.models.transformer import FeedForward, LayerNorm
from attnbook.models.vision import cut_patches

Attention = type[JointAttention]
JOINT: tuple[Attention, Attention] = (JointAttention, JointAttention)
FACTORIZED: tuple[Attention, Attention] = (SpaceAttention, TimeAttention)
SPACE_ONLY: tuple[Attention, Attention] = (SpaceAttention, SpaceAttention)
CONTRAST, BRIGHTNESS = 3.0, 4.0  # factors of initial weights


class FrameEncoder(nn.Module):
    """Two convolutions and one linear layer: a frame's features.

    Args:
        size: the side of a frame, a multiple of 4.
        width: C, of the features.
        channels: of the first convolution; the second has twice as many.
    """

    def __init__(self, size: int, width: int, channels: int = 8):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.output = nn.Linear(2 * channels * (size // 4) ** 2, width)

    def forward(self, frames: Float[Tensor, "B T H W"]) -> Float[Tensor, "B T C"]:
        """Return the features of every frame, each computed from it alone."""
        x = frames.flatten(0, 1)[:, None]  # (B · T, 1, H, W)
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.output(x.flatten(1)).unflatten(0, frames.shape[:2])


class TemporalAttentionPooling(nn.Module):
    """Weights of the frames: one learned query, the features are the keys.

    Args:
        width: C.
    """

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, width))

    def forward(self, features: Float[Tensor, "B T C"]) -> Float[Tensor, "B T"]:
        """Return the weight of each frame; a clip's weights sum to 1."""
        return attention_weights(self.query, features)[:, 0]


class MeanPooling(nn.Module):
    """Equal weights for all frames."""

    def forward(self, features: Float[Tensor, "B T C"]) -> Float[Tensor, "B T"]:
        """Return 1 / T for each frame."""
        return torch.full_like(features[..., 0], 1 / features.shape[1])


class LastFrame(nn.Module):
    """All weight on the last frame."""

    def forward(self, features: Float[Tensor, "B T C"]) -> Float[Tensor, "B T"]:
        """Return 1 for the last frame and 0 for the others."""
        weights = torch.zeros_like(features[..., 0])
        weights[:, -1] = 1
        return weights


class ClipClassifier(nn.Module):
    """A weighted mean of the frames' features, and a linear layer.

    Args:
        encoder: frames (B, T, H, W) to features (B, T, C).
        pooling: features to the weights (B, T) of the frames.
        width: C.
        classes: K.
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


class SpaceTimeBlock(nn.Module):
    """Two attentions over space, time or both, then a feed-forward network.

    Args:
        width: C.
        heads: of each attention.
        hidden: width of the feed-forward network's hidden layer.
        kinds: the two attentions.
    """

    def __init__(self, width: int, heads: int, hidden: int, kinds: Sequence[Attention]):
        super().__init__()
        self.attentions = nn.ModuleList(kind(width, heads) for kind in kinds)
        self.feed_forward = FeedForward(width, hidden)
        self.norms = nn.ModuleList(LayerNorm(width) for _ in range(len(kinds) + 1))

    def forward(
        self, x: Float[Tensor, "B T N C"]
    ) -> tuple[Float[Tensor, "B T N C"], list[Tensor]]:
        """Return the patches' vectors, and the weights of each attention."""
        *before, last = self.norms
        weights = []
        for norm, attention in zip(before, self.attentions, strict=True):
            output, found = attention(norm(x), need_weights=True)
            weights.append(found)
            x = x + output
        network = self.feed_forward(last(x).flatten(0, 1))  # (B · T, N, C)
        return x + network.unflatten(0, x.shape[:2]), weights


class VideoTransformer(nn.Module):
    """Patches of all frames, blocks of attention over them, and their mean.

    Args:
        frames: T.
        size: the side of a frame.
        patch: the side of a patch.
        classes: K.
        kinds: a block's two attentions: `JOINT`, `FACTORIZED` or `SPACE_ONLY`.
        width: C.
        heads: of each attention.
        blocks: how many.

    Raises:
        ValueError: in `forward`, if frames do not divide into patches.
    """

    def __init__(
        self,
        frames: int,
        size: int,
        patch: int,
        classes: int,
        kinds: Sequence[Attention],
        width: int = 32,
        heads: int = 2,
        blocks: int = 1,
    ):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch**2, width)
        self.time = nn.Parameter(0.5 * torch.randn(frames, 1, width))
        places = (size // patch) ** 2
        self.place = nn.Parameter(0.5 * torch.randn(places, width))
        self.blocks = nn.ModuleList(
            SpaceTimeBlock(width, heads, 2 * width, kinds) for _ in range(blocks)
        )
        self.norm = LayerNorm(width)
        self.output = nn.Linear(width, classes)
        self.scale_up()

    @torch.no_grad()
    def scale_up(self) -> None:
        """Scale up the projections of pixels, queries and keys, once.

        With PyTorch's initial values, all weights of a query are nearly equal,
        and a model did not begin to learn directions within 900 steps.
        """
        self.embed.weight *= BRIGHTNESS
        for layer in self.modules():
            if isinstance(layer, JointAttention):
                layer.attention.query.weight *= CONTRAST
                layer.attention.key.weight *= CONTRAST

    def forward(
        self, frames: Float[Tensor, "B T H W"]
    ) -> tuple[Float[Tensor, "B K"], list[list[Tensor]]]:
        """Return the logits, and the weights by block and attention."""
        patches = cut_patches(frames.flatten(0, 1)[:, None], self.patch)
        x = self.embed(patches).unflatten(0, frames.shape[:2])  # (B, T, N, C)
        x = x + self.time + self.place
        weights = []
        for block in self.blocks:
            x, found = block(x)
            weights.append(found)
        return self.output(self.norm(x).mean((1, 2))), weights
