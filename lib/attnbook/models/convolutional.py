"""A small convolutional network: the baseline without attention on images.

Source: LeCun et al. (1998), section II.A, https://doi.org/10.1109/5.726791.
    Departures: ReLU, strides instead of subsampling, one linear layer.
Axes: B batch, C channels, H and W rows and columns of pixels, K classes
"""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn


class ConvolutionalFeatures(nn.Sequential):
    """Convolutions of 3 by 3, each followed by a ReLU.

    Args:
        channels: of the images, then of each layer's output.
        strides: of each layer: 2 halves the rows and the columns.

    Raises:
        ValueError: if there is not one stride a layer.
    """

    def __init__(self, channels: Sequence[int], strides: Sequence[int]):
        if len(strides) != len(channels) - 1:
            raise ValueError(
                f"{len(channels) - 1} layers need as many strides, not {len(strides)}"
            )
        layers: list[nn.Module] = []
        for i, stride in enumerate(strides):
            layers += [
                nn.Conv2d(channels[i], channels[i + 1], 3, stride, padding=1),
                nn.ReLU(),
            ]
        super().__init__(*layers)
        self.width = channels[-1]


class FlatClassifier(nn.Module):
    """Convolutional features, all positions side by side, a linear layer.

    Args:
        channels: of the images, then of each layer's output.
        strides: of each layer.
        size: pixels on each side of the square images.
        classes: K.
    """

    def __init__(
        self,
        channels: Sequence[int],
        strides: Sequence[int],
        size: int,
        classes: int = 10,
    ):
        super().__init__()
        self.features = ConvolutionalFeatures(channels, strides)
        for stride in strides:
            size = math.ceil(size / stride)
        self.output = nn.Linear(self.features.width * size**2, classes)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return the logits of the classes."""
        return self.output(self.features(images).flatten(1))
