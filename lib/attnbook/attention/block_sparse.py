"""Block-sparse attention: time and memory follow the blocks that are kept.

A layout says which blocks of keys each block of queries attends to; all other
blocks are neither read nor computed. Inside the kept blocks a rule can mask
single positions, such as the edge of a window. Only query, key and value are
saved for the backward pass, which computes the weights of each block again.

Source: Child et al. (2019), https://arxiv.org/abs/1904.10509, and Zaheer et al.
    (2020), appendix D, https://arxiv.org/abs/2007.14062, for the blocks; the
    backward pass is chapter 4's, one row of blocks at a time, with weights that
    are recomputed as in Dao et al. (2022), algorithm 4,
    https://arxiv.org/abs/2205.14135
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of
    values, N M blocks of queries and of keys
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbook.attention.gradient import attend_gradient
from attnbook.attention.scaled_dot_product import attend, require_values
from attnbook.masks import evaluate_rule
from attnbook.masks.rules import Rule


def attend_block_sparse(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    layout: Bool[Tensor, "N M"],
    rule: Rule | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return `attend` with the mask of a layout and, inside its blocks, a rule.

    The result is that of the mask `block_sparse(layout, size) & rule`, where
    the size of a block is T / N.

    Args:
        query: the queries.
        key: the keys.
        value: the values, one for each key.
        layout: True where a block of queries attends to a block of keys.
        rule: which positions inside the kept blocks a query can attend to; all
            unless given.

    Raises:
        ValueError: if the blocks do not divide the queries or the keys, or a
            block of queries has no block of keys.
    """
    require_values(key, value)
    size, runs = read_layout(query, key, layout)
    rows = [Row(n * size, (n + 1) * size, x) for n, x in enumerate(runs)]
    if rule is not None:
        rows = [x.restrict(rule, query) for x in rows]
    # PyTorch does not annotate `apply`.
    output: Tensor = BlockSparse.apply(  # type: ignore[no-untyped-call]
        query, key, value, rows
    )
    return output


class Row(NamedTuple):
    """What is kept of the scores of a block of queries.

    Attributes:
        start: its first query.
        stop: the query after its last one.
        runs: the ranges of keys that it attends to.
        mask: True where a query can attend to one of these keys.
    """

    start: int
    stop: int
    runs: list[tuple[int, int]]
    mask: Tensor | None = None

    def restrict(self, rule: Rule, like: Tensor) -> "Row":
        """Return the row with the mask that a rule leaves of it."""
        query = torch.arange(self.start, self.stop, device=like.device)
        runs = [torch.arange(a, b, device=like.device) for a, b in self.runs]
        mask = evaluate_rule(rule, query, torch.cat(runs), *like.shape[:2])
        return self._replace(mask=mask)


def read_layout(
    query: Tensor, key: Tensor, layout: Tensor
) -> tuple[int, list[list[tuple[int, int]]]]:
    """Return the size of a block, and the ranges of keys of each row.

    Raises:
        ValueError: if the blocks do not divide the queries or the keys, or a
            row is empty.
    """
    T, S = query.shape[-2], key.shape[-2]
    N, M = layout.shape
    if T % N or S % M or T // N != S // M:
        raise ValueError(
            f"a layout of {N} by {M} blocks does not divide {T} queries and "
            f"{S} keys into square blocks"
        )
    size = T // N
    found = []
    for n, row in enumerate(layout.tolist()):
        runs: list[tuple[int, int]] = []
        for m, kept in enumerate(row):
            if kept and runs and runs[-1][1] == m * size:
                runs[-1] = runs[-1][0], (m + 1) * size
            elif kept:
                runs.append((m * size, (m + 1) * size))
        if not runs:
            raise ValueError(
                f"block {n} of the {N} blocks of queries attends to none of "
                f"the {M} blocks of keys; each needs at least one"
            )
        found.append(runs)
    return size, found


class BlockSparse(torch.autograd.Function):
    """Attention to the kept blocks, and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, rows: list[Row]
    ) -> Tensor:
        """Compute one row of blocks after the other; keep the inputs."""
        ctx.save_for_backward(query, key, value)
        ctx.rows = rows
        output = value.new_empty(*query.shape[:-1], value.shape[-1])
        for start, stop, runs, mask in rows:
            output[..., start:stop, :] = attend(
                query[..., start:stop, :],
                take_runs(key, runs),
                take_runs(value, runs),
                mask,
            )
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Compute the weights of each row of blocks again, and go back."""
        query, key, value = ctx.saved_tensors
        dquery = torch.empty_like(query)
        # A key is in several rows of blocks: its sum is taken in float32.
        wide = torch.promote_types(key.dtype, torch.float32)
        sums = [torch.zeros_like(x, dtype=wide) for x in (key, value)]
        for start, stop, runs, mask in ctx.rows:
            dquery[..., start:stop, :], *found = attend_gradient(
                query[..., start:stop, :],
                take_runs(key, runs),
                take_runs(value, runs),
                upstream[..., start:stop, :],
                mask,
            )
            for total, part in zip(sums, found, strict=True):
                sizes = [last - first for first, last in runs]
                pieces = part.split(sizes, dim=-2)
                for (first, last), piece in zip(runs, pieces, strict=True):
                    total[..., first:last, :] += piece
        return dquery, sums[0].to(key), sums[1].to(value), None


def take_runs(x: Tensor, runs: list[tuple[int, int]]) -> Tensor:
    """Return the rows in some ranges; of one range, a view."""
    parts = [x[..., start:stop, :] for start, stop in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
