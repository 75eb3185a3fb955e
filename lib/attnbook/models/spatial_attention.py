"""Spatial attention: a query that is learned attends to places of an image.

Convolutional features at R · Q places become one vector in three ways with
equally many parameters: by attention, by their mean, or by their maximum.

Source: soft attention to places: Xu et al. (2015), "Show, attend and tell",
    section 4.2, https://arxiv.org/abs/1502.03044. Departures: a single query,
    which is a parameter, and scaled dot-product attention. The map of a class
    under mean pooling: Zhou et al. (2016), section 2,
    https://arxiv.org/abs/1512.04150.
Axes: B batch, I channels of an image, H and W its rows and columns of pixels,
    R and Q those of the features, N = R · Q places, C width of a feature,
    K classes, 4: top, left, bottom, right
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.scaled_dot_product import attend, scaled_scores
from attnbook.models.convolutional import ConvolutionalFeatures


class SpatialAttentionPooling(nn.Module):
    """One learned query attends to the features of all places.

    The values are the features themselves. C² + C parameters.

    Args:
        width: C.
    """

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


class MeanPooling(nn.Module):
    """A linear layer with ReLU at each place, then the mean over the places.

    C² + C parameters, as in `SpatialAttentionPooling`.

    Args:
        width: C.
    """

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def transform(self, features: Float[Tensor, "B N C"]) -> Tensor:
        """Return (B, N, C): what is pooled."""
        return F.relu(self.layer(features))

    def forward(self, features: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        """Return the mean over the places."""
        return self.transform(features).mean(dim=1)


class MaxPooling(MeanPooling):
    """The same layer, then each channel's largest value over the places."""

    def forward(self, features: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        """Return the maximum over the places."""
        return self.transform(features).amax(dim=1)


class PooledClassifier(nn.Module):
    """Convolutional features, pooled to one vector, and a linear layer.

    Args:
        features: of an image, at R rows and Q columns.
        pooling: class of the pooling, such as `SpatialAttentionPooling`.
        classes: K.
    """

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


def map_class(
    model: PooledClassifier,
    images: Float[Tensor, "B I H W"],
    classes: Int[Tensor, " B"],
) -> Float[Tensor, "B N"]:
    """Return each place's share of the positive part of a class's logit.

    For `MeanPooling`, the logit of a class is the mean over the places of
    output weight · transformed feature, plus the bias: the class activation
    map. Negative contributions count as 0.

    Args:
        model: with `MeanPooling`.
        images: its input.
        classes: one class an image.
    """
    transformed = model.pooling.transform(model.read_places(images))
    weight = model.output.weight[classes]  # (B, C)
    contributions = (transformed @ weight[:, :, None])[..., 0].relu()  # (B, N)
    return contributions / contributions.sum(-1, keepdim=True).clamp(min=1e-12)


def measure_mass_in_boxes(
    weights: Float[Tensor, "B R Q"], boxes: Int[Tensor, "B 4"], size: int
) -> Float[Tensor, "B"]:
    """Return the weight inside each box.

    The weight of a place is spread evenly over its cell of the image.

    Args:
        weights: on a grid over the square image.
        boxes: in pixels: first row and column, and those after the last.
        size: pixels on each side of the image.

    Raises:
        ValueError: if a box is not inside the image.
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
