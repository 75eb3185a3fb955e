"""What the book's heads cost in time, beside PyTorch's own module.

Axes: B batch, T positions, C model width, H heads
"""

import os
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from workshop.experiments.cores import hold_cores
from workshop.experiments.record import make_record, write_record
from workshop.experiments.registry import experiment

# B, T, C, H: sentences as in chapters 2 and 3, paragraphs, a page of text.
SIZES = {
    "sentence": (64, 20, 192, 4),
    "paragraph": (8, 128, 256, 8),
    "page": (2, 512, 256, 8),
}
THREADS, PAIRS, DRAWS = 2, 101, 2000


def build_modules(width: int, heads: int) -> tuple[nn.Module, nn.Module]:
    """Return the book's module and PyTorch's, with the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = MultiHeadAttention(width, heads)
    theirs = nn.MultiheadAttention(width, heads, batch_first=True)
    parts = ours.query, ours.key, ours.value
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
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


def time_pairs(
    ours: Callable, theirs: Callable, pairs: int = PAIRS
) -> dict[str, list[float]]:
    """Return the milliseconds of both, called in pairs, taking turns first."""
    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    calls = [("ours", ours), ("theirs", theirs)]
    for i in range(-3, pairs):
        for name, call in calls[:: 1 if i % 2 else -1]:
            begun = time.perf_counter()
            call()
            if i >= 0:
                taken[name].append(1000 * (time.perf_counter() - begun))
    return taken


def compute_ratio(taken: dict[str, list[float]]) -> dict[str, float]:
    """Return the middle ratio of the pairs, and its 95 % bootstrap interval."""
    ours, theirs = (
        torch.tensor(taken[k], dtype=torch.float64) for k in ("ours", "theirs")
    )
    ratios = ours / theirs
    rng = torch.Generator().manual_seed(0)
    rows = torch.randint(len(ratios), (DRAWS, len(ratios)), generator=rng)
    cuts = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = ratios[rows].median(dim=1).values.quantile(cuts).tolist()
    return {
        "ratio": float(ratios.median()),
        "low": low,
        "high": high,
        "ours_ms": float(ours.median()),
        "theirs_ms": float(theirs.median()),
    }


@experiment(on_cpu=True)
def multi_head_cost() -> dict:
    """Record training and evaluation, with and without weights, in pairs."""
    torch.set_num_threads(THREADS)
    results = {}
    with hold_cores(os.cpu_count() or 1):
        wall, cpu = time.perf_counter(), time.process_time()
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
                    results[name] = compute_ratio(time_pairs(*calls))
        made = make_record(
            "multi_head_cost",
            [0],
            results,
            sizes=SIZES,
            pairs=PAIRS,
            threads=THREADS,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
        )
    write_record(made)
    return made
