"""What the book's heads cost in time, beside PyTorch's own module.

Times are processor times of one thread, which other processes hardly change.

Axes: B batch, T positions, C model width, H heads
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, merge_heads
from attnbook.models.from_pytorch import copy_attention
from workshop.experiments.cost import compute_time_ratio
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

# B, T, C, H: sentences as in chapters 2 and 3, paragraphs, a page of text.
SIZES = {
    "sentence": (64, 20, 192, 4),
    "paragraph": (8, 128, 256, 8),
    "page": (2, 512, 256, 8),
}
THREADS, PAIRS = 1, 101
CLOCK = time.process_time
CONTROL = "page, evaluation, with weights over the scores"


class OverwritingAttention(MultiHeadAttention):
    """Multi-head attention whose softmax writes the weights over the scores."""

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return output and weights, without mask, bias and gradients."""
        scores = self.scores(query, key)
        weights = torch.softmax(scores, dim=-1, out=scores)
        context = self.combine(weights, value)
        return self.output(merge_heads(context)), weights


def build_modules(
    width: int, heads: int, kind: type[MultiHeadAttention] = MultiHeadAttention
) -> tuple[nn.Module, nn.Module]:
    """Return the book's module and PyTorch's, with the same weights."""
    ours = kind(width, heads)
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


def compare_modules(
    size: tuple[int, int, int, int],
    training: bool,
    need_weights: bool,
    kind: type[MultiHeadAttention] = MultiHeadAttention,
) -> dict[str, float]:
    """Return the ratio of the book's and PyTorch's time in one setting."""
    B, T, C, H = size
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, C, generator=rng)
    ours, theirs = (
        make_call(module, x, training, need_weights)
        for module in build_modules(C, H, kind)
    )
    return compute_time_ratio(ours, theirs, PAIRS, CLOCK)


@experiment(on_cpu=True)
@recorded(
    seeds=[0],
    threads=THREADS,
    clock=CLOCK.__name__,
    sizes=SIZES,
    pairs=PAIRS,
)
def multi_head_cost() -> dict:
    """Record training and evaluation, with and without weights, in pairs.

    One more row is the control in which our softmax, as PyTorch's module does,
    writes the weights over the scores.
    """
    results = {}
    for label, size in SIZES.items():
        for training in (True, False):
            for need in (False, True):
                way = "training" if training else "evaluation"
                with_ = "with" if need else "without"
                name = f"{label}, {way}, {with_} weights"
                results[name] = compare_modules(size, training, need)
    results[CONTROL] = compare_modules(SIZES["page"], False, True, OverwritingAttention)
    return results
