"""Exercise: attention from tiles of the scores, and the logsumexp of each row.

Source: Dao et al. (2022), section 3.1, algorithm 1,
    https://arxiv.org/abs/2205.14135; the order of the loops and the logsumexp
    as in Dao (2023), section 3.1, algorithm 1, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.flash_attention.tiles import (
    compute_memory_limit,
    draw_large_scores,
    draw_usual,
    drop_incomplete_tile,
    pad_to_tiles,
)
from attnbook.exercises.inputs import to_double

# Bytes: more than four tensors with 16 numbers for each of 96 queries, and less
# than all scores, or than three tiles of 64 · 64.
FEW_TILES = 36_000


def tiled(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    block: int,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention and each row's logsumexp, from tiles of the scores."""
    outputs, sums = [], []
    for q in (query * query.shape[-1] ** -0.5).split(block, dim=-2):
        maximum = q.new_full(q.shape[:-1], -torch.inf)
        total = torch.zeros_like(maximum)
        output = q.new_zeros(*q.shape[:-1], value.shape[-1])
        for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
            scores = q @ k.mT
            higher = torch.maximum(maximum, scores.amax(dim=-1))
            factor = (maximum - higher).exp()
            weights = (scores - higher[..., None]).exp()
            total = total * factor + weights.sum(dim=-1)
            output = output * factor[..., None] + weights @ v
            maximum = higher
        outputs.append(output / total[..., None])
        sums.append(maximum + total.log())
    return torch.cat(outputs, dim=-2), torch.cat(sums, dim=-1)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One tile; several; ragged ends; large scores; then the memory."""

    def case(tries, *lead, block, **sizes):
        return Case(tries, (*draw_usual(rng, *lead, **sizes), block))

    def scores(tries, signs, step=0):
        given = draw_large_scores(rng, len(signs), 11, torch.tensor(signs), step)
        return Case(tries, (*given, 4))

    def mixed(tries):
        query, key, value = draw_large_scores(rng, 3, 11, torch.tensor([1, -1, 1]))
        key[1::2] *= -1
        return Case(tries, (query, key, value, 4))

    return (
        case("with one query and one key", t=1, s=1, d=3, e=2, block=4),
        case("with a block larger than everything", t=3, s=5, block=8),
        case("with two tiles of keys", t=2, s=4, block=2),
        case("with all sizes equal", t=4, s=4, d=4, e=4, block=2),
        case(
            "with lengths that are not multiples of the block",
            t=5,
            s=7,
            block=3,
        ),
        case("with more queries than keys", t=11, s=5, block=4),
        case("with tiles of one score", t=2, s=3, block=1),
        case("with a batch of 3 and 2 heads", 3, 2, t=5, s=7, block=2),
        scores("with scores that grow from key to key", [1, 1, 1], 3),
        scores("with scores that fall from key to key", [-1, -1, -1], 3),
        scores("with scores near 120", [1, 1, 1, 1, 1]),
        scores("with scores near -120", [-1, -1, -1, -1, -1]),
        scores("with queries near 120 and near -120", [1, -1, 1, -1, -1]),
        mixed("with keys near 120 and near -120 in a tile"),
        Case(
            "in double precision",
            (*to_double(draw_usual(rng, t=5, s=7)), 3),
            asked=False,
        ),
        Case(
            "with 144 queries and keys in tiles of 24",
            (*draw_usual(rng, t=144, s=144, d=4, e=3), 24),
            memory_limit=compute_memory_limit(144, 144),
        ),
        Case(
            "with 64 queries and 1024 keys in tiles of 64",
            (*draw_usual(rng, t=64, s=1024, d=4, e=3), 64),
            memory_limit=compute_memory_limit(64, 1024),
            count_arrays=True,
        ),
        Case(
            "with 96 queries and keys in tiles of 16",
            (*draw_usual(rng, t=96, s=96, d=4, e=3), 16),
            memory_limit=FEW_TILES,
        ),
    )


def merge_normalized(query, key, value, block):
    """Loop over keys outside, and merge normalized outputs by logsumexp."""
    shape = query.shape[:-1]
    output = query.new_zeros(*shape, value.shape[-1])
    lse = query.new_full(shape, -torch.inf)
    for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
        for i in range(0, query.shape[-2], block):
            rows = slice(i, i + block)
            scores = query[..., rows, :] @ k.mT * query.shape[-1] ** -0.5
            after = torch.logaddexp(lse[..., rows], scores.logsumexp(-1))
            share = (lse[..., rows] - after).exp()[..., None]
            new = (scores - after[..., None]).exp() @ v
            output[..., rows, :] = output[..., rows, :] * share + new
            lse[..., rows] = after
    return output, lse


def drop_incomplete_queries(query, key, value, block):
    """Compute the queries that fill tiles, and leave 0 for those after them."""
    output, lse = tiled(query, key, value, block)
    count = drop_incomplete_tile(query, block).shape[-2]
    output[..., count:, :], lse[..., count:] = 0.0, 0.0
    return output, lse


def change_keys(change):
    """Return attention in tiles, with keys and values changed first."""
    return lambda query, key, value, block: tiled(
        query, change(key, block), change(value, block), block
    )


def compute_all_scores(query, key, value, block):
    """Make all scores, as the standard version does."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def tile_only_queries(query, key, value, block):
    """Divide only the queries: each chunk has an ordinary softmax."""
    found = [compute_all_scores(q, key, value, block) for q in query.split(block, -2)]
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def average_tiles(query, key, value, block):
    """Let every tile have its own softmax, and take the mean of the tiles."""
    scaled, k = query * query.shape[-1] ** -0.5, key.split(block, -2)
    parts, sums = [], []
    for rows in scaled.split(block, -2):
        each = [
            (rows @ x.mT).softmax(-1) @ v
            for x, v in zip(k, value.split(block, -2), strict=True)
        ]
        parts.append(torch.stack(each).mean(0))
        each = [(rows @ x.mT).logsumexp(-1) for x in k]
        sums.append(torch.stack(each).logsumexp(0))
    return torch.cat(parts, -2), torch.cat(sums, -1)


check_tiled = Exercise(
    title="tiled attention",
    stars=3,
    minutes=25,
    section="Tiling: the forward pass of FlashAttention",
    solution=tiled,
    returns=("output", "lse"),
    draw=draw,
    other_solutions=(merge_normalized,),
    allowed="Everything is allowed but a ready-made attention and a matrix of "
    "all scores.",
    mistakes=(
        Mistake(
            "no-rescale",
            "nothing rescaled",
            "when the maximum grows, neither the total nor the output of the "
            "previous tiles is rescaled",
            "(maximum - higher).exp() → torch.ones_like(total)",
        ),
        Mistake(
            "output-not-rescaled",
            "output not rescaled",
            "the total is rescaled to the new maximum, but the output is not",
            "output * factor[..., None] → output",
        ),
        Mistake(
            "total-not-rescaled",
            "total not rescaled",
            "the output is rescaled to the new maximum, but the total is not",
            "total * factor → total",
        ),
        Mistake(
            "rescale-inverted",
            "inverted rescaling factor",
            "the previous sums are multiplied by exp(new - old); the factor "
            "should be exp(old - new), which is at most 1",
            "(maximum - higher).exp() "
            "→ (higher - maximum).nan_to_num(posinf=0.0).exp()",
        ),
        Mistake(
            "last-tile",
            "last tile only",
            "the sums are reset for each tile of keys, so only the last tile "
            "is counted",
            (
                "torch.maximum(maximum, scores.amax(dim=-1)) → scores.amax(dim=-1)",
                "(maximum - higher).exp() → torch.zeros_like(total)",
            ),
        ),
        Mistake(
            "mean-of-tiles",
            "mean of the tiles",
            "each tile has its own softmax, and the tiles' outputs are "
            "averaged equally; they should be weighted by their totals",
            average_tiles,
        ),
        Mistake(
            "divided-in-every-tile",
            "normalized in every tile",
            "the output is divided by the total in every tile; divide once, "
            "at the end, or undo the division before the next tile",
            (
                "output * factor → (output * factor",
                "weights @ v → weights @ v) / total[..., None]",
                "output / total[..., None]) → output)",
            ),
        ),
        Mistake(
            "not-divided",
            "not normalized",
            "the output is not divided by the total",
            "output / total[..., None] → output",
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "the exponential is applied to the scores without a shift, so it "
            "overflows or underflows",
            (
                "(scores - higher[..., None]).exp() → scores.exp()",
                "(maximum - higher).exp() → torch.ones_like(total)",
                "maximum + total.log() → total.log()",
            ),
        ),
        Mistake(
            "starts-at-zero",
            "maximum initialized with 0",
            "the maximum is initialized with 0, so all weights of a row of "
            "very negative scores underflow to 0; initialize it with -inf",
            "-torch.inf → 0.0",
        ),
        Mistake(
            "one-maximum",
            "one maximum for all rows",
            "all rows of a tile share one maximum, so rows far below it underflow to 0",
            "scores.amax(dim=-1) → scores.amax().expand(total.shape)",
        ),
        Mistake(
            "no-scale",
            "no division by √D",
            "the scores are not divided by √D",
            "(query * query.shape[-1] ** -0.5) → query",
        ),
        Mistake(
            "scaled-by-value-width",
            "division by √E, not by √D",
            "the scores are divided by √E, the root of the value width; they "
            "should be divided by √D",
            "query.shape → value.shape",
        ),
        Mistake(
            "queries-dropped",
            "last queries dropped",
            "the last queries, which do not fill a tile, are not computed",
            drop_incomplete_queries,
        ),
        Mistake(
            "keys-dropped",
            "last keys dropped",
            "the last keys, which do not fill a tile, are left out",
            change_keys(drop_incomplete_tile),
        ),
        Mistake(
            "padding-seen",
            "zero-padded keys attended to",
            "the last tile of keys is padded with zeros, and a key of zeros "
            "has the score 0, which gets weight",
            change_keys(pad_to_tiles),
        ),
        Mistake(
            "lse-without-logarithm",
            "logsumexp without logarithm",
            "it returns the maximum plus the total; the logsumexp is the "
            "maximum plus the logarithm of the total",
            "maximum + total.log() → maximum + total",
        ),
        Mistake(
            "lse-without-maximum",
            "logsumexp without maximum",
            "it returns the logarithm of the shifted total; the maximum must be added",
            "maximum + total.log() → total.log()",
        ),
        Mistake(
            "lse-base-two",
            "logsumexp to base 2",
            "the logsumexp is to base 2; it should be a natural logarithm",
            "maximum + total.log() → maximum * 1.44269504 + total.log2()",
        ),
        Mistake(
            "maximum-for-lse",
            "maximum instead of logsumexp",
            "it returns the maximum instead of the logsumexp",
            "maximum + total.log() → maximum",
        ),
        Mistake(
            "total-for-lse",
            "total instead of logsumexp",
            "it returns the total instead of the logsumexp",
            "maximum + total.log() → total",
        ),
        Mistake(
            "block-ignored",
            "tiles of a fixed size",
            "its tiles have a fixed size, whatever `block` is; a larger tile "
            "needs more memory",
            lambda query, key, value, block: tiled(query, key, value, 64),
        ),
        Mistake(
            "queries-only",
            "only the queries tiled",
            "only the queries are divided into tiles: a query chunk against "
            "all keys is the whole matrix when there are few queries",
            tile_only_queries,
        ),
        Mistake(
            "whole-matrix",
            "whole score matrix in memory",
            "it holds the whole score matrix in memory, or a tensor of that "
            "size; one tile is enough",
            compute_all_scores,
        ),
    ),
)
