"""Exercise: attention from tiles of the scores, and the logsumexp of each row.

Chapter: chapters/11_flash_attention
Source: Dao et al. (2022), section 3.1, algorithm 1,
    https://arxiv.org/abs/2205.14135; the order of the loops and the logsumexp
    as in Dao (2023), section 3.1, algorithm 1, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.flash_attention.answers import padded, tiles, whole_only
from attnbook.exercises.flash_attention.logits import far, most, usual
from attnbook.exercises.inputs import doubled
from attnbook.solutions.flash_attention import tiled


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One tile; several; ragged ends; large scores; then the memory."""

    def case(tries, *lead, block, **sizes):
        return Case(tries, (*usual(rng, *lead, **sizes), block))

    def scores(tries, signs, step=0):
        given = far(rng, len(signs), 11, torch.tensor(signs), step)
        return Case(tries, (*given, 4))

    return (
        case("with one query and one key", t=1, s=1, d=3, e=2, block=4),
        case("with a block larger than everything", t=3, s=5, block=8),
        case("with two tiles of keys", t=2, s=4, block=2),
        case("with all sizes equal", t=4, s=4, d=4, e=4, block=2),
        case("with ragged tiles", t=5, s=7, block=3),
        case("with more queries than keys", t=11, s=5, block=4),
        case("with tiles of one score", t=2, s=3, block=1),
        case("with a batch of 2 and 3 heads", 2, 3, t=5, s=7, block=3),
        scores("with scores that grow from key to key", [1, 1, 1], 3),
        scores("with scores that fall from key to key", [-1, -1, -1], 3),
        scores("with scores near 120", [1, 1, 1, 1, 1]),
        scores("with scores near -120", [-1, -1, -1, -1, -1]),
        scores("with queries near 120 and near -120", [1, -1, 1, -1, -1]),
        Case("in double precision", (*doubled(usual(rng, t=5, s=7)), 3)),
        Case(
            "with 144 queries and keys in tiles of 24",
            (*usual(rng, t=144, s=144, d=4, e=3), 24),
            room=most(144, 144),
        ),
        Case(
            "with 64 queries and 1024 keys in tiles of 64",
            (*usual(rng, t=64, s=1024, d=4, e=3), 64),
            room=most(64, 1024),
        ),
    )


def at_once(query, key, value, block):
    """Make all scores, as the standard version does."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def strips(query, key, value, block):
    """Cut the queries only: each strip has an ordinary softmax."""
    found = [at_once(q, key, value, block) for q in query.split(block, -2)]
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def nothing(old, new):
    """Return the factor of those who do not rescale."""
    return torch.ones_like(new)


def inverse(old, new):
    """Return the factor the wrong way round."""
    return (new - old).masked_fill(old == -torch.inf, 0.0).exp()


def unshifted(scores, top):
    """Return weights without the shift."""
    return scores.exp()


def running_mean(query, key, value, block):
    """Divide by the total so far in every tile, and never undo it."""
    scale, found = query.shape[-1] ** -0.5, []
    for q in (query * scale).split(block, -2):
        top, total, output = q.new_full(q.shape[:-1], -torch.inf), 0.0, 0.0
        for k, v in zip(
            key.split(block, -2), value.split(block, -2), strict=True
        ):
            scores = q @ k.mT
            now = torch.maximum(top, scores.amax(-1))
            factor = (top - now).exp()
            weights = (scores - now[..., None]).exp()
            total = total * factor + weights.sum(-1)
            output = output * factor[..., None] + weights @ v
            output, top = output / total[..., None], now
        found.append((output, top + total.log()))
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def mean_of_tiles(query, key, value, block):
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
    title="attention in tiles",
    stars=3,
    minutes=25,
    section="Tiles",
    solution=tiled,
    returns=("output", "lse"),
    draw=draw,
    allowed="Everything is allowed but a ready-made attention and a matrix of "
    "all scores.",
    mistakes=(
        Mistake(
            "no-rescale",
            "the maximum has grown, and neither the total nor the output of "
            "the tiles before is brought to the new one",
            tiles(of_output=nothing, of_total=nothing),
        ),
        Mistake(
            "output-not-rescaled",
            "the total is brought to the new maximum and the output is not; "
            "both are sums of the same weights",
            tiles(of_output=nothing),
        ),
        Mistake(
            "total-not-rescaled",
            "the output is brought to the new maximum and the total is not; "
            "both are sums of the same weights",
            tiles(of_total=nothing),
        ),
        Mistake(
            "rescale-inverted",
            "what was summed is multiplied by exp(new - old); exp(old - new) "
            "is at most 1",
            tiles(of_output=inverse, of_total=inverse),
        ),
        Mistake(
            "last-tile",
            "each tile of keys begins anew: only the last one is left",
            tiles(
                higher=lambda old, new: new,
                of_output=lambda old, new: torch.zeros_like(new),
                of_total=lambda old, new: torch.zeros_like(new),
            ),
        ),
        Mistake(
            "mean-of-tiles",
            "each tile has a softmax of its own, and their mean is taken; "
            "tiles differ in weight",
            mean_of_tiles,
        ),
        Mistake(
            "divided-in-every-tile",
            "the output is divided by the total in every tile; divide once, "
            "at the end, or undo it before the next",
            running_mean,
        ),
        Mistake(
            "not-divided",
            "the output is not divided by the total",
            tiles(mean=lambda output, total: output),
        ),
        Mistake(
            "no-shift",
            "exp is taken of the scores as they are, and over- or underflows",
            tiles(
                weigh=unshifted,
                of_output=nothing,
                of_total=nothing,
                lse=lambda top, total: total.log(),
            ),
        ),
        Mistake(
            "starts-at-zero",
            "the maximum starts at 0, and a row of very negative scores never "
            "gets below it: all its weights are 0",
            tiles(start=0.0),
        ),
        Mistake(
            "one-maximum",
            "all rows of a tile share one maximum; a row far below it is 0 "
            "everywhere",
            tiles(best=lambda scores: scores.amax().expand(scores.shape[:-1])),
        ),
        Mistake(
            "no-scale",
            "the products are not divided by √D",
            tiles(lambda q, k, v: 1.0),
        ),
        Mistake(
            "scaled-by-value-width",
            "the products are divided by √E, the width of a value; √D is meant",
            tiles(lambda q, k, v: v.shape[-1] ** -0.5),
        ),
        Mistake(
            "queries-dropped",
            "the last queries do not fill a tile and are left out",
            tiles(queries=whole_only),
        ),
        Mistake(
            "keys-dropped",
            "the last keys do not fill a tile and are left out",
            tiles(keys=whole_only),
        ),
        Mistake(
            "padding-seen",
            "the last tile of keys is filled up with zeros, and a key of "
            "zeros has the score 0, which is a score like any other",
            tiles(keys=padded),
        ),
        Mistake(
            "lse-without-logarithm",
            "maximum plus total is returned; the total's logarithm is meant",
            tiles(lse=lambda top, total: top + total),
        ),
        Mistake(
            "lse-without-maximum",
            "the logarithm of the shifted total is returned; the maximum "
            "belongs to it",
            tiles(lse=lambda top, total: total.log()),
        ),
        Mistake(
            "lse-base-two",
            "the logarithm is taken to base 2; natural logarithms are meant",
            tiles(lse=lambda top, total: top * 1.44269504 + total.log2()),
        ),
        Mistake(
            "maximum-for-lse",
            "the maximum is returned in place of the logsumexp",
            tiles(lse=lambda top, total: top),
        ),
        Mistake(
            "total-for-lse",
            "the total is returned in place of the logsumexp",
            tiles(lse=lambda top, total: total),
        ),
        Mistake(
            "queries-only",
            "only the queries are cut: a strip of them against all keys is "
            "the whole matrix when there are few queries",
            strips,
        ),
        Mistake(
            "whole-matrix",
            "the whole matrix of scores is held at once, or as much as that; "
            "a tile of it is enough",
            at_once,
        ),
    ),
)
