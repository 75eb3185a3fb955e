"""The inputs of a row, and whether a result at full size is right.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnbook.attention.error_budget import error_budget, share_of_budget
from attnbook.attention.scaled_dot_product import attend
from workshop.bench.implementations import build_bias, build_mask
from workshop.bench.rows import Row

# Queries at the beginning, in the middle and at the end that are compared.
SAMPLED = 16


def draw_inputs(row: Row, device: str, seed: int = 0) -> list[Tensor]:
    """Return query, key, value and upstream, normally distributed."""
    B, H, G, T, S, D = row.shape
    rng = torch.Generator(device).manual_seed(seed)
    sizes = (B, H, T, D), (B, G, S, D), (B, G, S, D), (B, H, T, D)
    kind = getattr(torch, row.dtype)
    return [torch.randn(x, generator=rng, device=device).to(kind) for x in sizes]


def measure_error_share(
    row: Row, device: str, inputs: list, found: Tensor | Sequence[Tensor]
) -> float:
    """Return the share of the error budget that some rows of a result take.

    Of the first sequence and head, rows at the beginning, in the middle and at
    the end are compared with float64: rows of the output, or of the query's
    gradient. Each depends on all visible keys, and on no other query.
    """
    query, key, value, upstream = (x[0, 0] for x in inputs)
    T = len(query)
    ends = torch.cat([torch.arange(i, i + SAMPLED) for i in (0, T // 2, T - SAMPLED)])
    some = ends.clamp(0, T - 1).unique().to(device)
    more = {"mask": build_mask(row, device, some)}
    if row.case == "alibi":
        more["bias"] = build_bias(row, device, some)[0]

    # Kernels add in float32, and no tile has fewer than 16 keys.
    output, dquery, *_ = error_budget(
        lambda query, key, value: attend(query, key, value, **cast(more, query)),
        (query[some], key, value),
        upstream[some],
        accumulate=torch.promote_types(query.dtype, torch.float32),
        tiles=math.ceil(len(key) / 16),
    )
    ours, budget = (found, output) if row.direction == "fwd" else (found[0], dquery)
    return share_of_budget(ours.detach()[0, 0, some], budget)


def cast(more: dict, like: Tensor) -> dict:
    """Return a mask, and a bias in a query's precision."""
    return {
        k: x.to(like.dtype) if k == "bias" and x is not None else x
        for k, x in more.items()
    }
