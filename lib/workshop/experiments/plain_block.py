"""A block without norms, to time a training step of: which batch and length?

Source: the parts: Vaswani et al. (2017), sections 3.2.2 and 3.3,
    https://arxiv.org/abs/1706.03762; without norms, dropout and biases
Axes: B batch, T positions, C model width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.grouped_query import GroupedQueryAttention
from attnbook.models.devices import use_seed

# Batch and length of a training step: one of them halved, or both changed.
STEPS = ((2, 2048), (1, 2048), (2, 1024), (4, 1024))
WIDTH, HEADS = 256, 8


class PlainBlock(nn.Module):
    """Attention and a feed-forward layer, each added to what came in."""

    def __init__(self, width: int, count: int):
        super().__init__()
        self.attention = GroupedQueryAttention(width, count, count, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Return the block's output."""
        x = x + self.attention(x)
        return x + self.down(self.up(x).relu())


def make_training_step(B: int, length: int) -> Callable[[], object]:
    """Return a step's way there and back through one block."""
    with use_seed(0):
        block = PlainBlock(WIDTH, HEADS)
        x, upstream = torch.randn(2, B, length, WIDTH)
    weights = [*block.parameters()]
    return lambda: torch.autograd.grad(block(x), weights, upstream)
