"""Models of images: patches, a Vision Transformer, attention over places, a loss.

Source: patches and the Vision Transformer: Dosovitskiy et al. (2021), §3.1, equations 1
    to 4, https://arxiv.org/abs/2010.11929, with ReLU, and one linear layer as the
    output; convolutions: LeCun et al. (1998), section II.A,
    https://doi.org/10.1109/5.726791, with ReLU, strides, and one linear layer. Soft
    attention to places: Xu et al. (2015), section 4.2,
    https://arxiv.org/abs/1502.03044, with one learned query and scaled dot products.
    Contrastive loss: Radford et al. (2021), section 2.3 and figure 3,
    https://arxiv.org/abs/2103.00020.
Axes: B batch, I channels of an image, H and W its rows and columns of pixels, N patches
    or places, R and Q rows and columns of places, P values of a patch, C model width or
    channels, K classes, 4: top, left, bottom, right
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from attnbook.attention.scaled_dot_product import attend, scaled_scores
from attnbook.models.transformer import EncoderBlock, PreNorm
from attnbook.positions.absolute import LearnedEncoding


def cut_patches(
    images: Shaped[Tensor, "B C H W"], size: int
) -> Shaped[Tensor, "B N P"]:
    """Return the patches of images, row by row, from left to right.

    A patch is flattened as channel, row, column: P = C · size². ValueError unless the
    height and the width of the images are multiples of `size`.
    """
    batch, channels, height, width = images.shape
    require_division(height, width, size)
    rows, columns = height // size, width // size
    cells = images.reshape(batch, channels, rows, size, columns, size)
    patches = cells.permute(0, 2, 4, 1, 3, 5)  # B, rows, columns, C, size, size
    return patches.reshape(batch, rows * columns, channels * size**2)


def require_division(height: int, width: int, size: int) -> None:
    """Raise ValueError unless the size of patches divides height and width."""
    if size < 1 or height % size or width % size:
        raise ValueError(
            f"images of {height} by {width} pixels do not divide into patches "
            f"of {size} by {size}"
        )


class ConvolutionalFeatures(nn.Sequential):
    """Convolutions of 3 by 3, each followed by a ReLU.

    `channels` are those of the images, then of each layer's output; a stride of 2
    halves the rows and the columns.
    """

    def __init__(self, channels: Sequence[int], strides: Sequence[int]):
        layers: list[nn.Module] = []
        for (before, after), stride in zip(pairwise(channels), strides, strict=True):
            layers += [nn.Conv2d(before, after, 3, stride, padding=1), nn.ReLU()]
        super().__init__(*layers)
        self.width = channels[-1]


class VisionTransformer(nn.Module):
    """Patches, a class token, position encodings, encoder blocks, an output.

    The class token is position 0; patch n, counted row by row, is position n + 1. The
    output layer reads the class token alone.

    `size` and `patch` are the pixels on each side of the square images and of a patch,
    `layers` the number of blocks, `hidden` the width inside the feed-forward networks.
    """

    def __init__(
        self,
        size: int = 28,
        patch: int = 7,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        hidden: int = 64,
        channels: int = 1,
        classes: int = 10,
        encoding: type[nn.Module] = LearnedEncoding,
    ):
        super().__init__()
        blank = torch.zeros(1, channels, size, size, device="cpu")
        _, number, values = cut_patches(blank, patch).shape
        self.patch = patch
        self.project = nn.Linear(values, width)
        self.class_token = nn.Parameter(0.02 * torch.randn(width))
        self.positions = encoding(number + 1, width)
        self.blocks = nn.ModuleList(
            EncoderBlock(width, heads, hidden, residual=PreNorm) for _ in range(layers)
        )
        self.norm = PreNorm.make_final_norm(width)
        self.output = nn.Linear(width, classes)

    def embed(self, images: Float[Tensor, "B I H W"]) -> Tensor:
        """Return (B, N + 1, C): class token and patches with positions."""
        x = self.project(cut_patches(images, self.patch))  # (B, N, C)
        token = self.class_token.expand(len(x), 1, -1)  # (B, 1, C)
        x = torch.cat([token, x], dim=1)  # (B, N + 1, C)
        return x + self.positions(torch.arange(x.shape[1], device=x.device))

    def forward(self, images: Float[Tensor, "B I H W"]) -> Float[Tensor, "B K"]:
        """Return the logits of the classes."""
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x[:, 0]))


class SpatialAttentionPooling(nn.Module):
    """One learned query attends to the features of all places, which are the values."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Parameter(torch.randn(width))
        self.key = nn.Linear(width, width, bias=False)

    def compute_weights(self, features: Float[Tensor, "B N C"]) -> Float[Tensor, "B N"]:
        """Return the attention weights of the places."""
        keys = self.key(features)  # (B, N, C)
        return scaled_scores(self.query[None], keys)[:, 0].softmax(dim=-1)

    def forward(self, features: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        """Return the weighted mean of the features."""
        return attend(self.query[None], self.key(features), features)[:, 0]


class PooledClassifier(nn.Module):
    """Convolutional features, pooled to one vector, and a linear layer."""

    def __init__(
        self,
        features: ConvolutionalFeatures,
        pooling: type[nn.Module],
        classes: int = 10,
    ):
        super().__init__()
        self.features = features
        self.pooling: Any = pooling(features.width)
        self.output = nn.Linear(features.width, classes)

    def read_places(self, images: Float[Tensor, "B I H W"]) -> Tensor:
        """Return (B, N, C): the features of the places, row by row."""
        return self.features(images).flatten(2).transpose(1, 2)

    def forward(self, images: Float[Tensor, "B I H W"]) -> Float[Tensor, "B K"]:
        """Return the logits of the classes."""
        return self.output(self.pooling(self.read_places(images)))


def measure_mass_in_boxes(
    weights: Float[Tensor, "B R Q"], boxes: Int[Tensor, "B 4"], size: int
) -> Float[Tensor, "B"]:
    """Return the weight inside each box; that of a place is spread over its cell.

    The weights are on a grid over the square image, `size` pixels wide. The boxes are
    in pixels, inside it: first row and column, and those after the last.
    """
    top, left, bottom, right = boxes.unbind(-1)
    if (boxes < 0).any() or (boxes > size).any():
        raise ValueError(
            f"boxes lie between 0 and {size}, not between {int(boxes.min())} "
            f"and {int(boxes.max())}"
        )
    rows = _cover(top, bottom, weights.shape[1], size)  # (B, R)
    columns = _cover(left, right, weights.shape[2], size)  # (B, Q)
    return torch.einsum("brq,br,bq->b", weights, rows, columns)


def _cover(
    begin: Int[Tensor, " B"], end: Int[Tensor, " B"], cells: int, size: int
) -> Float[Tensor, "B cells"]:
    """Return the share of each cell of a line that lies in an interval."""
    edges = torch.arange(cells + 1, device=begin.device) * (size / cells)
    low = torch.maximum(edges[:-1], begin[:, None])
    high = torch.minimum(edges[1:], end[:, None])
    return (high - low).clamp(min=0) / (size / cells)


def contrastive_loss(similarity: Float[Tensor, "B B"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy (nats) of finding each pair, both ways.

    The similarity of images (rows) and texts (columns) is divided by the temperature;
    the pairs are on the diagonal.
    """
    pairs = torch.arange(len(similarity), device=similarity.device)
    by_image = F.cross_entropy(similarity, pairs)
    by_text = F.cross_entropy(similarity.T, pairs)
    return (by_image + by_text) / 2
