"""Training of small classifiers of images, the same for every model.

Axes: B batch, N images of training, C channels, H and W rows and columns
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from attnbook.models.devices import use_seed
from attnbook.training.loop import optimize

BATCH, WARMUP = 32, 50
Model = TypeVar("Model", bound=nn.Module)


def build_with_seed(build: Callable[[], Model], seed: int) -> Model:
    """Return a new model whose weights a seed draws."""
    with use_seed(seed):
        return build()


def train_classifier(
    model: nn.Module,
    images: Float[Tensor, "N C H W"],
    labels: Int64[Tensor, "N"],
    rate: float,
    steps: int,
    seed: int,
) -> None:
    """Train with Adam on random batches, to predict the labels.

    The learning rate rises for `WARMUP` steps, and falls linearly to 0 from the
    first step on.

    Args:
        model: from images to logits.
        images: of training.
        labels: of the images.
        rate: highest learning rate.
        steps: number of batches of `BATCH` images.
        seed: draws the batches.
    """
    rng = torch.Generator().manual_seed(seed)

    def draw() -> Iterator[Tensor]:
        for _ in range(steps):
            yield torch.randint(len(images), (BATCH,), generator=rng)

    model.train()
    optimize(
        torch.optim.Adam(model.parameters(), lr=rate),
        draw(),
        lambda chosen: F.cross_entropy(model(images[chosen]), labels[chosen]),
        lambda step: rate * min(1, (step + 1) / WARMUP) * (1 - step / steps),
    )
    model.eval()


@torch.no_grad()
def measure_accuracy(
    model: nn.Module,
    images: Float[Tensor, "N C H W"],
    labels: Int64[Tensor, "N"],
) -> float:
    """Return the share of images whose most probable class is their label."""
    return float((model(images).argmax(-1) == labels).double().mean())
