"""What the book's heads cost in time, beside PyTorch's own module.

Axes: B batch, T positions, C model width, H heads
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.models.from_pytorch import copy_attention
from workshop.experiments.cost import compute_time_ratio
from workshop.experiments.record import CORES, recorded
from workshop.experiments.registry import experiment

# B, T, C, H: sentences as in chapters 2 and 3, paragraphs, a page of text.
SIZES = {
    "sentence": (64, 20, 192, 4),
    "paragraph": (8, 128, 256, 8),
    "page": (2, 512, 256, 8),
}
THREADS, PAIRS = 2, 101


def build_modules(width: int, heads: int) -> tuple[nn.Module, nn.Module]:
    """Return the book's module and PyTorch's, with the same weights."""
    ours = MultiHeadAttention(width, heads)
    theirs = nn.MultiheadAttention(width, heads, batch_first=True)
    copy_attention(ours, theirs)
    return ours, theirs


def make_call(
    module: nn.Module, x: Tensor, training: bool, need_weights: bool
) -> Callable[[], Tensor]:
    """Return self-attention to x as a call; in training, with its gradients."""
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    module.train(training)

    def forward(x: Tensor) -> Tensor:
        if isinstance(module, MultiHeadAttention):
            got = module(x, need_weights=need_weights)
        else:
            got = module(
                *(x, x, x),
                need_weights=need_weights,
                average_attn_weights=False,
            )
        return got[0] if isinstance(got, tuple) else got

    def evaluate() -> Tensor:
        with torch.no_grad():
            return forward(x)

    def train() -> Tensor:
        module.zero_grad()
        output = forward(x.detach().requires_grad_())
        output.backward(upstream)
        return output

    return train if training else evaluate


@experiment(on_cpu=True)
@recorded(seeds=[0], threads=THREADS, cores=CORES, sizes=SIZES, pairs=PAIRS)
def multi_head_cost() -> dict:
    """Record training and evaluation, with and without weights, in pairs."""
    results = {}
    for label, (B, T, C, H) in SIZES.items():
        both = build_modules(C, H)
        rng = torch.Generator().manual_seed(0)
        x = torch.randn(B, T, C, generator=rng)
        for training in (True, False):
            for need in (False, True):
                calls = (make_call(m, x, training, need) for m in both)
                way = "training" if training else "evaluation"
                with_ = "with" if need else "without"
                name = f"{label}, {way}, {with_} weights"
                results[name] = compute_time_ratio(*calls, PAIRS)
    return results
