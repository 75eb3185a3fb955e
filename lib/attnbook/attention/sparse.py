"""Block-sparse attention, and selections of the keys that are worth attending to.

A layout says which blocks of keys each block of queries attends to; all other
blocks are neither read nor computed. Inside the kept blocks a rule can mask
single positions, such as the edge of a window. Only query, key and value are
saved for the backward pass, which computes the weights of each block again. In
float32 on a CPU, the forward pass takes oneDNN's products, and each thread rows
of blocks of its own.

A selection is a mask. Its keys have the largest scores, whichever these are:
the attention weights themselves, which only an oracle knows beforehand, the
products of the query and the mean key of each block, or those of the lightning
indexer: a few narrow heads, the same for all heads of a layer, score key s for
query t by I_ts = Σ_j w_tj ReLU(q_tj · k_s), where w and q depend on t, k on s.

Source: blocks: Child et al. (2019), https://arxiv.org/abs/1904.10509, and
    Zaheer et al. (2020), appendix D, https://arxiv.org/abs/2007.14062; the
    backward pass is chapter 4's, one row of blocks at a time, with weights that
    are recomputed as in Dao et al. (2022), algorithm 4,
    https://arxiv.org/abs/2205.14135. Blocks by their mean key: Lu et al.
    (2025), MoBA, section 2.2, https://arxiv.org/abs/2502.13189 (the query's own
    block always counts as one of the selected ones; departure: its models were
    trained with the selection). Lightning indexer: DeepSeek-AI (2025),
    DeepSeek-V3.2-Exp, section 1 and equations 1 and 3,
    https://github.com/deepseek-ai/DeepSeek-V3.2-Exp, and `Indexer` in its
    inference/model.py: LayerNorm of the keys, rotary embeddings on some of the
    columns, and the factors 1/√D and 1/√H. Departures: q comes from the layer's
    input instead of a compressed query; no Hadamard transform and no 8-bit
    numbers.
Axes: B batch, H heads, G groups (key-value heads), J heads of the indexer, T
    queries, S keys, K sinks, R the queries among them that are scored, N M blocks of
    queries and of keys, D width of query and key, E of values, C model width
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnbook.attention.blocked import (
    attend_with_sinks,
    has_onednn,
    match_heads,
    multiply,
    run_in_threads,
)
from attnbook.attention.multi_head import grouped_scores
from attnbook.attention.scaled_dot_product import attend_gradient
from attnbook.masks import evaluate_rule
from attnbook.masks.layouts import count_blocks
from attnbook.masks.rules import Rule, check_positive
from attnbook.positions.rotary import rotate_partly


def attend_block_sparse(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
    layout: Bool[Tensor, "..."],
    rule: Rule | None = None,
    sinks: Float[Tensor, "K"] | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return `attend` with the mask of a layout and, inside its blocks, a rule.

    The result is that of the mask `block_sparse(layout, size) & rule`, where
    the size of a block is T / N. All queries of a block share its blocks of keys:
    NSA's selection is such a layout where its T / N queries select together; with
    MoBA, whose queries select one by one, the layout holds the union, and a rule
    the selection.

    Args:
        layout: True where a block of queries attends to a block of keys; shape
            (N, M), (H, N, M) or (B, H, N, M), where H and B may be 1. Rows may
            differ in their number of blocks.
        rule: which positions inside the kept blocks a query can attend to; all
            unless given.
        sinks: one more logit for each head, which has no value (gpt-oss).

    Raises:
        ValueError: if the layout does not fit batch and heads, its blocks do not
            divide the queries or the keys, a block of queries has no block of
            keys, G does not divide H, or there is not one sink for each head.
    """
    query, key, value = match_heads(query, key, value, sinks)
    size, rows = read_layout(query, key, layout)
    lead = query.shape[:2]
    if sinks is not None:
        sinks = sinks.to(query).repeat(lead[0])
    blocks = (x.flatten(0, 1).unflatten(1, (-1, size)) for x in (query, key, value))
    # PyTorch does not annotate `apply`.
    output: Tensor = BlockSparse.apply(  # type: ignore[no-untyped-call]
        *blocks, sinks, rows, lead, rule
    )
    return output.flatten(1, 2).unflatten(0, lead)


class Row(NamedTuple):
    """A block of queries, and which heads attend to which blocks of keys.

    The heads of the second sequence follow those of the first one.
    """

    number: Tensor  # of the block, (1,)
    blocks: Tensor  # of keys that any head attends to, (U,)
    shares: list[tuple[Tensor, Tensor]]  # heads, (h, 1), and their blocks, (c,)

    def restrict(self, rule: Rule | None, B: int, H: int, size: int) -> Tensor | None:
        """Return the mask (B H or 1, R, U, R) that a rule leaves of the blocks."""
        if rule is None:
            return None
        inside = torch.arange(size, device=self.number.device)
        query = (self.number[:, None] * size + inside).flatten()
        key = (self.blocks[:, None] * size + inside).flatten()
        mask = evaluate_rule(rule, query, key, B, H)
        same = mask.ndim < 4 or mask.shape[:2] == (1, 1)
        mask = mask.expand(*((1, 1) if same else (B, H)), size, len(key))
        return mask.flatten(0, 1).unflatten(-1, (-1, size))

    def cut(self, mask: Tensor | None, heads: Tensor, kept: Tensor) -> Tensor | None:
        """Return some heads' part of that mask, over their blocks alone."""
        if mask is None:
            return None
        mask = mask[:, :, torch.isin(self.blocks, kept)].flatten(2)
        return mask if len(mask) == 1 else mask[heads[:, 0]]


def read_layout(query: Tensor, key: Tensor, layout: Tensor) -> tuple[int, list[Row]]:
    """Return the size of a block, and the rows; heads with equal blocks share one."""
    (B, H, T, _), S = query.shape, key.shape[2]
    if layout.dtype != torch.bool or layout.ndim < 2 or not layout.numel():
        raise ValueError(
            "a layout must be boolean, with blocks of queries by blocks of keys, but "
            f"is {layout.dtype} of shape {tuple(layout.shape)}"
        )
    N, M = layout.shape[-2:]
    try:
        layout = layout.expand(B, H, N, M).flatten(0, 1)
    except RuntimeError:
        raise ValueError(
            f"a layout of shape {tuple(layout.shape)} does not fit {B} sequences "
            f"of {H} heads"
        ) from None
    if T % N or S % M or T // N != S // M or not T:
        raise ValueError(
            f"a layout of {N} by {M} blocks does not divide {T} queries and "
            f"{S} keys into square blocks"
        )
    for n in (~layout.any(dim=-1).all(dim=0)).nonzero().flatten().tolist():
        raise ValueError(
            f"block {n} of the {N} blocks of queries attends to none of "
            f"the {M} blocks of keys; each needs at least one"
        )

    def index(*numbers: int) -> Tensor:
        return torch.tensor(numbers, device=query.device)

    kept: dict[tuple[int, int], list[int]] = {}
    for n, head, m in layout.transpose(0, 1).nonzero().tolist():
        kept.setdefault((n, head), []).append(m)
    same: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(N)]
    for (n, head), blocks in kept.items():
        same[n].setdefault(tuple(blocks), []).append(head)
    rows = []
    for n, found in enumerate(same):
        shares = [(index(*heads)[:, None], index(*x)) for x, heads in found.items()]
        union = index(*sorted({m for blocks in found for m in blocks}))
        rows.append(Row(index(n), union, shares))
    return T // N, rows


def fill_rows(
    given: list[Tensor],
    output: Tensor,
    rows: list[Row],
    lead: tuple[int, int],
    rule: Rule | None,
    sinks: Tensor | None,
) -> None:
    """Fill in rows of the output (B H, N, R, E) by oneDNN's products.

    A query without keys, and a key that is NaN, leave NaN in it.
    """
    query, *more = given
    keys, values, outputs = (x.unbind(0) for x in (*more, output))
    size, D = query.shape[2:]
    zeros = query.new_zeros(size, size)
    for row in rows:
        mask = row.restrict(rule, *lead, size)
        n, blocks = int(row.number), row.blocks.tolist()
        scaled = query[:, n] * D**-0.5
        biases: list[dict[int, Tensor]] = []
        for part in () if mask is None else mask:
            # A byte of each position: their smallest is 0 where one is masked out.
            whole = part.contiguous().view(torch.uint8).amin(0).amin(1).tolist()
            hidden = [(u, m) for u, m in enumerate(blocks) if not whole[u]]
            biases.append(
                {m: zeros.masked_fill(~part[:, u], -torch.inf) for u, m in hidden}
            )
        for heads, kept in row.shares:
            columns = list(enumerate(kept.tolist()))
            for i in heads.flatten().tolist():
                chosen = keys[i].index_select(0, kept).flatten(0, 1)
                scores = multiply(scaled[i], chosen)
                bias = biases[i % len(biases)] if biases else {}
                for j, m in columns:
                    if m in bias:
                        scores[:, j * size : (j + 1) * size] += bias[m]
                if sinks is not None:
                    # The weights of the keys sum to sigmoid(lse - sink).
                    lse = scores.logsumexp(dim=-1, keepdim=True)
                    share = (lse - sinks[i]).sigmoid()
                weights = torch.softmax(scores, dim=-1, out=scores)
                chosen = values[i].index_select(0, kept).flatten(0, 1)
                outputs[i][n] = multiply(weights, chosen.mT)
                if sinks is not None:
                    outputs[i][n] *= share


class BlockSparse(torch.autograd.Function):
    """Attention to the kept blocks, and its gradient.

    Query, key, value and output are (B H, N, R, D), B and H the lead; there is a
    sink for each of B H heads.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        rows: list[Row],
        lead: tuple[int, int],
        rule: Rule | None,
    ) -> Tensor:
        """Compute one row of blocks after the other; keep the inputs."""
        ctx.save_for_backward(query, key, value, sinks)
        ctx.rows, ctx.lead, ctx.rule = rows, lead, rule
        given, size = [query, key, value], query.shape[2]
        output = value.new_empty(*query.shape[:-1], value.shape[-1])
        if has_onednn(*given):
            run_in_threads(
                lambda part: fill_rows(given, output, part, lead, rule, sinks), rows
            )
            if not output.sum().isnan():
                return output
        for row in rows:
            mask = row.restrict(rule, *lead, size)
            for heads, kept in row.shares:
                q, k, v = (
                    x[heads, y].flatten(1, 2)
                    for x, y in zip(given, (row.number, kept, kept), strict=True)
                )
                more = None if sinks is None else sinks[heads[:, 0]]
                found = attend_with_sinks(q, k, v, row.cut(mask, heads, kept), more)
                output[heads, row.number] = found.unflatten(1, (1, size))
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the weights of each row of blocks again, and go back."""
        # Unpacked once: a checkpoint allows no more.
        query, key, value, sinks = saved = ctx.saved_tensors
        size = query.shape[2]
        # A key is in several rows of blocks: its sum is taken in float32.
        wide = torch.promote_types(key.dtype, torch.float32)
        sums = [x.new_zeros(x.shape, dtype=wide) for x in saved if x is not None]
        for row in ctx.rows:
            whole = row.restrict(ctx.rule, *ctx.lead, size)
            for heads, kept in row.shares:
                places = row.number, kept, kept, row.number
                q, k, v, up = (
                    x[heads, y].flatten(1, 2)
                    for x, y in zip((query, key, value, upstream), places, strict=True)
                )
                mask = row.cut(whole, heads, kept)
                found: tuple[Tensor, ...]
                if sinks is None:
                    found = attend_gradient(q, k, v, up, mask)
                else:
                    some = q, k, v, sinks[heads[:, 0]]
                    q, k, v, s = leaves = [x.detach().requires_grad_() for x in some]
                    with torch.enable_grad():
                        again = attend_with_sinks(q, k, v, mask, s)
                    found = torch.autograd.grad(again, leaves, up)
                    sums[3][heads[:, 0]] += found[3]
                for total, part, y in zip(sums, found[:3], places, strict=False):
                    total[heads, y] += part.unflatten(1, (-1, size))
        found = tuple(x.to(y) for x, y in zip(sums, saved, strict=False))
        return *found, *[None] * (7 - len(found))


def select_top_keys(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "..."], count: int
) -> Bool[Tensor, "*B T S"]:
    """Return the mask of the `count` keys with the largest scores of a query.

    >>> scores = torch.tensor([[3.0, 1.0, 2.0, 9.0]])
    >>> select_top_keys(scores, torch.tensor([1, 1, 1, 0]).bool(), 2).tolist()
    [[True, False, True, False]]

    A query that can attend to fewer keys, where `mask` is True, keeps all.

    Raises:
        ValueError: if the count is below 1.
    """
    check_positive(count=count)
    visible = scores.masked_fill(~mask, -torch.inf)
    best = visible.topk(min(count, scores.shape[-1]), dim=-1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    return chosen.scatter_(-1, best, True) & mask


def sum_over_blocks(
    weights: Float[Tensor, "*B T S"], size: int
) -> Float[Tensor, "*B T M"]:
    """Return how much weight a query gives to each block of keys.

    Raises:
        ValueError: if blocks of this size do not divide the keys.
    """
    count_blocks(weights.shape[-1], size)
    return weights.unflatten(-1, (-1, size)).sum(dim=-1)


def score_mean_keys(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    size: int,
    positions: Int[Tensor, "T"] | None = None,
) -> Float[Tensor, "B H T M"]:
    """Return the scores of blocks: products of a query and a mean key.

    A query's own block scores ∞; the blocks after it score minus ∞.

    Args:
        query: rotated if the keys are.
        size: keys of a block.
        positions: of the queries among the keys; the last ones unless given.

    Raises:
        ValueError: if blocks of this size do not divide the keys.
    """
    T, S = query.shape[2], key.shape[2]
    count = count_blocks(S, size)
    if positions is None:
        positions = torch.arange(S - T, S, device=key.device)
    scores = grouped_scores(query, key.unflatten(2, (-1, size)).mean(dim=3))
    own = positions[:, None] // size
    block = torch.arange(count, device=key.device)
    scores = scores.masked_fill(block == own, torch.inf)
    return scores.masked_fill(block > own, -torch.inf)


def select_top_blocks(
    scores: Float[Tensor, "*B T M"],
    mask: Bool[Tensor, "..."],
    count: int,
    size: int,
) -> Bool[Tensor, "*B T S"]:
    """Return the mask of the `count` blocks, of `size` keys, that score most.

    The mask says which keys a query can attend to at all.

    Raises:
        ValueError: if the count or the size is below 1.
    """
    check_positive(size=size)
    everywhere = torch.ones((), dtype=torch.bool, device=scores.device)
    blocks = select_top_keys(scores, everywhere, count)
    return blocks.repeat_interleave(size, dim=-1) & mask


class LightningIndexer(nn.Module):
    """Scores of all keys for the queries of a layer.

    Args:
        heads: J.
        size: D, a multiple of 4: half of the columns are rotated.
        base: of the rotary frequencies.
    """

    def __init__(self, width: int, heads: int, size: int, base: float = 10000):
        super().__init__()
        self.query = nn.Linear(width, heads * size, bias=False)
        self.key = nn.Linear(width, size, bias=False)
        self.norm = nn.LayerNorm(size, eps=1e-6)
        self.weight = nn.Linear(width, heads, bias=False)
        self.heads, self.size, self.base = heads, size, base

    def forward(
        self, x: Float[Tensor, "B T C"], rows: Int[Tensor, "R"] | None = None
    ) -> Float[Tensor, "B R T"]:
        """Return the scores of all keys for the queries at `rows`, or for all."""
        positions = torch.arange(x.shape[1], device=x.device)
        rows = positions if rows is None else rows
        asked = x[:, rows]
        half = self.size // 2, self.base
        query = self.query(asked).unflatten(-1, (self.heads, self.size))
        query = rotate_partly(query.transpose(1, 2), rows, *half)  # (B, J, R, D)
        key = rotate_partly(self.norm(self.key(x))[:, None], positions, *half)
        products = (query @ key.mT).relu()  # (B, J, R, T)
        weight = self.weight(asked).mT[..., None]  # (B, J, R, 1)
        scale = (self.heads * self.size) ** -0.5
        return (products * weight).sum(dim=1) * scale


def compute_indexer_loss(
    scores: Float[Tensor, "B R T"],
    weights: Float[Tensor, "B H R T"],
    mask: Bool[Tensor, "R T"],
) -> Float[Tensor, ""]:
    """Return the mean KL divergence of scores from the attention's weights.

    The target of a query is the mean of its weights over the heads.
    """
    target = weights.mean(dim=1)
    # A masked key has the target 0; 0 · log 0 is 0, but 0 · ∞ is NaN.
    predicted = scores.masked_fill(~mask, -torch.inf).log_softmax(dim=-1)
    predicted = predicted.masked_fill(~mask, 0.0)
    terms = torch.xlogy(target, target) - target * predicted
    return terms.sum(dim=-1).mean()
