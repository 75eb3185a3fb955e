"""Exercise: the tiled backward pass from the saved logsumexp.

Source: Dao et al. (2022), appendix B.4, algorithm 4,
    https://arxiv.org/abs/2205.14135, with one logsumexp a row as in Dao (2023),
    section 3.1, algorithm 2, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import ATTENTION, Case, Exercise, Mistake
from attnbook.exercises.flash_attention.tiled import tiled
from attnbook.exercises.flash_attention.tiles import (
    compute_memory_limit,
    draw_large_scores,
    draw_usual,
)
from attnbook.exercises.inputs import draw_normal, to_double
from attnbook.exercises.scaled_dot_product.gradient import AUTOGRAD, gradient


def tiled_backward(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    output: Float[Tensor, "*B T E"],
    lse: Float[Tensor, "*B T"],
    upstream: Float[Tensor, "*B T E"],
    block: int,
) -> tuple[Float[Tensor, "*B T D"], Float[Tensor, "*B S D"], Float[Tensor, "*B S E"]]:
    """Return a loss's gradients for query, key and value, tile by tile."""
    scale = query.shape[-1] ** -0.5
    average = (upstream * output).sum(dim=-1, keepdim=True)
    dquery, dkey, dvalue = (torch.zeros_like(x) for x in (query, key, value))
    by_query = query, upstream, lse[..., None], average, dquery
    rows = [x.split(block, dim=-2) for x in by_query]
    columns = [x.split(block, dim=-2) for x in (key, value, dkey, dvalue)]
    for k, v, dk, dv in zip(*columns, strict=True):
        for q, up, z, mean, dq in zip(*rows, strict=True):
            weights = (q * scale @ k.mT - z).exp()
            dscores = weights * (up @ v.mT - mean) * scale
            dq += dscores @ k  # views: what is added here arrives in dquery
            dk += dscores.mT @ q
            dv += weights.mT @ up
    return dquery, dkey, dvalue


def compute_all_weights(query, key, value, output, lse, upstream, block):
    """Make all weights, as the standard version does."""
    return gradient(query, key, value, upstream)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One tile; several; ragged ends; large scores; then the memory."""

    def inputs(given, block):
        kind, shape = given[0].dtype, given[0].shape[:-1]
        upstream = draw_normal(rng, *shape, given[2].shape[-1], dtype=kind)
        saved = (x.to(kind) for x in tiled(*to_double(given), block))
        return *given, *saved, upstream, block

    def case(tries, *lead, block, **sizes):
        return Case(tries, inputs(draw_usual(rng, *lead, **sizes), block))

    def scores(tries, signs, step):
        # In double precision: a logsumexp of 720 in single would be so coarse
        # that right answers differ visibly.
        given = draw_large_scores(
            rng, len(signs), 11, torch.tensor(signs), step, (18, 10), 0.25
        )
        return Case(tries, inputs(to_double(given), 4))

    precise = inputs(to_double(draw_usual(rng, t=5, s=7)), 3)
    room = inputs(draw_usual(rng, t=144, s=144, d=4, e=3), 24)
    return (
        case("with one query and one key", t=1, s=1, d=3, e=2, block=4),
        case("with one tile", t=3, s=5, block=8),
        case("with two tiles of keys", t=2, s=4, block=2),
        case("with two tiles of queries", t=4, s=2, block=2),
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
        scores("with scores that grow from key to key", [1, 1, 1, 1, 1], 1),
        scores("with queries near 720 and near -720", [1, -1, 1, -1, -1], 0),
        Case("in double precision", precise, asked=False),
        Case(
            "with 144 queries and keys in tiles of 24",
            room,
            memory_limit=compute_memory_limit(144, 144),
            count_arrays=True,
        ),
    )


check_tiled_backward = Exercise(
    title="tiled backward pass",
    stars=3,
    minutes=25,
    section="Recomputation: the backward pass",
    solution=tiled_backward,
    returns=("dquery", "dkey", "dvalue"),
    draw=draw,
    without=frozenset({"long", "positions"}),
    allowed="Everything is allowed but autograd, a ready-made attention and a "
    "matrix of all scores.",
    forbidden=ATTENTION | AUTOGRAD,
    mistakes=(
        Mistake(
            "no-average",
            "average not subtracted",
            "the weighted average of the gradients, upstream · output, is not "
            "subtracted",
            "up @ v.mT - mean → up @ v.mT",
        ),
        Mistake(
            "average-of-the-tile",
            "average over one tile",
            "the average is taken over the keys of one tile; it should run "
            "over all keys, and then equals upstream · output",
            "- mean) → - (weights * (up @ v.mT)).sum(-1, keepdim=True))",
        ),
        Mistake(
            "average-of-upstream",
            "upstream · upstream subtracted",
            "it subtracts upstream · upstream; it should be upstream · output",
            "upstream * output → upstream * upstream",
        ),
        Mistake(
            "average-unsummed",
            "mean over the value width",
            "the mean of upstream · output over the value width is "
            "subtracted; it should be the sum",
            ".sum( → .mean(",
        ),
        Mistake(
            "average-added",
            "average added",
            "the average is added; it should be subtracted",
            "v.mT - mean → v.mT + mean",
        ),
        Mistake(
            "softmax-of-the-tile",
            "softmax of each tile",
            "each tile has its own softmax; a weight should be exp(score - "
            "logsumexp), with the logsumexp over all keys",
            "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).softmax(-1)",
        ),
        Mistake(
            "lse-divides",
            "divided by the logsumexp",
            "the exponential is divided by the logsumexp, which is a "
            "logarithm; subtract it from the score first",
            "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).exp() / z",
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "it computes exp(score) / exp(logsumexp), which overflows; "
            "subtract before the exponential",
            "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).exp() / z.exp()",
        ),
        Mistake(
            "maximum-for-lse",
            "maximum instead of logsumexp",
            "the maximum is subtracted from the scores, and the exponentials "
            "are not divided by their total; subtract the logsumexp instead",
            "lse[..., None] → (query * scale @ key.mT).amax(-1, keepdim=True)",
        ),
        Mistake(
            "base-two",
            "powers of 2 instead of e",
            "it uses powers of 2; this logsumexp is a natural logarithm",
            "- z).exp() → - z).exp2()",
        ),
        Mistake(
            "scores-unscaled",
            "scores without the scale",
            "the scores are recomputed without 1/√D, but the logsumexp is "
            "that of the scaled scores",
            "q * scale @ → q @",
        ),
        Mistake(
            "no-scale",
            "no 1/√D in the gradients",
            "the gradients lack the factor 1/√D, which belongs to both "
            "`dquery` and `dkey`",
            "- mean) * scale → - mean)",
        ),
        Mistake(
            "key-unscaled",
            "dkey not scaled",
            "`dquery` is scaled, but `dkey` is not; the factor 1/√D belongs to both",
            "dscores.mT @ q → dscores.mT @ q / scale",
        ),
        Mistake(
            "query-unscaled",
            "dquery not scaled",
            "`dkey` is scaled, but `dquery` is not; the factor 1/√D belongs to both",
            "dscores @ k → dscores @ k / scale",
        ),
        Mistake(
            "scaled-twice",
            "scaled twice",
            "the gradients contain the factor 1/√D twice",
            "- mean) * scale → - mean) * scale**2",
        ),
        Mistake(
            "query-overwritten",
            "dquery overwritten",
            "each tile of keys overwrites `dquery`; it should be added up over "
            "the tiles",
            "dq += → dq[:] =",
        ),
        Mistake(
            "key-overwritten",
            "dkey and dvalue overwritten",
            "each tile of queries overwrites `dkey` and `dvalue`; they should "
            "be added up over the tiles",
            ("dk += → dk[:] =", "dv += → dv[:] ="),
        ),
        Mistake(
            "all-overwritten",
            "all gradients overwritten",
            "each tile overwrites the gradients; they should be added up over "
            "the tiles",
            ("dq += → dq[:] =", "dk += → dk[:] =", "dv += → dv[:] ="),
        ),
        Mistake(
            "no-weight",
            "not multiplied by the weights",
            "the difference from the average is not multiplied by the weights",
            "weights * (up → (up",
        ),
        Mistake(
            "no-softmax",
            "softmax gradient skipped",
            "the gradient of the softmax is skipped: the gradient of the "
            "weights is used as that of the scores",
            "weights * (up @ v.mT - mean) → up @ v.mT",
        ),
        Mistake(
            "scores-for-weights",
            "dvalue from the score gradients",
            "`dvalue` is computed with the gradients of the scores; it should "
            "use the weights",
            "weights.mT @ up → dscores.mT @ up / scale",
        ),
        Mistake(
            "queries-dropped",
            "last queries dropped",
            "the last queries, which do not fill a tile, are left out",
            "zip(*rows, strict=True) → [x for x in zip(*rows, strict=True) "
            "if x[0].shape[-2] == min(block, query.shape[-2])]",
        ),
        Mistake(
            "keys-dropped",
            "last keys dropped",
            "the last keys, which do not fill a tile, are left out",
            "zip(*columns, strict=True) "
            "→ [x for x in zip(*columns, strict=True) "
            "if x[0].shape[-2] == min(block, key.shape[-2])]",
        ),
        Mistake(
            "descent",
            "wrong sign",
            "all signs are wrong: these are the negative gradients",
            lambda *given: tuple(-x for x in tiled_backward(*given)),
        ),
        Mistake(
            "whole-matrix",
            "whole weight matrix in memory",
            "it holds the whole weight matrix in memory, or a tensor of that "
            "size; one tile is enough",
            compute_all_weights,
        ),
    ),
)
