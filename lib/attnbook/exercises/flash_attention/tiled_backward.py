"""Exercise: the way back in tiles, from the saved logsumexp.

Chapter: chapters/11_flash_attention
Source: Dao et al. (2022), appendix B.4, algorithm 4,
    https://arxiv.org/abs/2205.14135, with one logsumexp a row as in Dao (2023),
    section 3.1, algorithm 2, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width
"""

import torch

from attnbook.exercises.exercise import ATTENTION, Case, Exercise, Mistake
from attnbook.exercises.flash_attention.answers import backward, whole_only
from attnbook.exercises.flash_attention.logits import far, most, usual
from attnbook.exercises.inputs import doubled, normal
from attnbook.solutions.flash_attention import tiled, tiled_backward
from attnbook.solutions.scaled_dot_product import gradient


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One tile; several; ragged ends; large scores; then the memory."""

    def inputs(given, block):
        kind, shape = given[0].dtype, given[0].shape[:-1]
        upstream = normal(rng, *shape, given[2].shape[-1], dtype=kind)
        saved = (x.to(kind) for x in tiled(*doubled(given), block))
        return *given, *saved, upstream, block

    def case(tries, *lead, block, **sizes):
        return Case(tries, inputs(usual(rng, *lead, **sizes), block))

    def scores(tries, signs, step):
        # In double precision: a logsumexp of 720 in single would be so coarse
        # that right answers differ visibly.
        given = far(
            rng, len(signs), 11, torch.tensor(signs), step, (18, 10), 0.25
        )
        return Case(tries, inputs(doubled(given), 4))

    precise = inputs(doubled(usual(rng, t=5, s=7)), 3)
    room = inputs(usual(rng, t=144, s=144, d=4, e=3), 24)
    return (
        case("with one query and one key", t=1, s=1, d=3, e=2, block=4),
        case("with one tile", t=3, s=5, block=8),
        case("with two tiles of keys", t=2, s=4, block=2),
        case("with two tiles of queries", t=4, s=2, block=2),
        case("with all sizes equal", t=4, s=4, d=4, e=4, block=2),
        case("with ragged tiles", t=5, s=7, block=3),
        case("with more queries than keys", t=11, s=5, block=4),
        case("with tiles of one score", t=2, s=3, block=1),
        case("with a batch of 2 and 3 heads", 2, 3, t=5, s=7, block=3),
        scores("with scores that grow from key to key", [1, 1, 1, 1, 1], 1),
        scores("with queries near 720 and near -720", [1, -1, 1, -1, -1], 0),
        Case("in double precision", precise),
        Case(
            "with 144 queries and keys in tiles of 24",
            room,
            room=most(144, 144),
        ),
    )


def from_scores(bend):
    """Return weights with something done to a tile's scores and logsumexps."""
    return lambda q, k, z, c: bend(q @ k.mT * c, z)


def at_once(query, key, value, output, lse, upstream, block):
    """Make all weights, as the standard version does."""
    return gradient(query, key, value, upstream)


def of_the_tile(w, dw, mean):
    """Take the average over the tile's keys alone."""
    return w * (dw - (w * dw).sum(-1, keepdim=True))


def shifted_only(query, key, value, output, lse, upstream, block):
    """Forget to divide: exp(score - maximum) is no weight yet."""
    top = (query @ key.mT * query.shape[-1] ** -0.5).amax(-1)
    return backward()(query, key, value, output, top, upstream, block)


check_tiled_backward = Exercise(
    title="the way back in tiles",
    stars=3,
    minutes=25,
    section="The way back from the logsumexp",
    solution=tiled_backward,
    returns=("dquery", "dkey", "dvalue"),
    draw=draw,
    allowed="Everything is allowed but autograd, a ready-made attention and a "
    "matrix of all scores.",
    forbidden=ATTENTION
    | {"grad", "backward", "make_dual", "softmax_backward_data"},
    mistakes=(
        Mistake(
            "no-average",
            "the average that a query gets now, upstream · output, is not "
            "subtracted",
            backward(dscores=lambda w, dw, mean: w * dw),
        ),
        Mistake(
            "average-of-the-tile",
            "the average is taken over the keys of one tile; it runs over all "
            "keys, and upstream · output has it ready",
            backward(dscores=of_the_tile),
        ),
        Mistake(
            "average-of-upstream",
            "what is subtracted is upstream · upstream; upstream · output is "
            "meant",
            backward(mean=lambda o, up: (up * up).sum(-1, keepdim=True)),
        ),
        Mistake(
            "average-unsummed",
            "what is subtracted is the mean of upstream · output over the "
            "value's width; their sum is meant",
            backward(mean=lambda o, up: (up * o).mean(-1, keepdim=True)),
        ),
        Mistake(
            "average-added",
            "the average is added; it is subtracted",
            backward(dscores=lambda w, dw, mean: w * (dw + mean)),
        ),
        Mistake(
            "softmax-of-the-tile",
            "each tile has a softmax of its own; a weight is "
            "exp(score - logsumexp), over all keys",
            backward(weights=from_scores(lambda s, z: s.softmax(-1))),
        ),
        Mistake(
            "lse-divides",
            "the power is divided by the logsumexp, which is a logarithm: "
            "subtract it first",
            backward(weights=from_scores(lambda s, z: s.exp() / z)),
        ),
        Mistake(
            "no-shift",
            "exp of the score over exp of the logsumexp is right on paper and "
            "overflows; subtract first",
            backward(weights=from_scores(lambda s, z: s.exp() / z.exp())),
        ),
        Mistake(
            "maximum-for-lse",
            "the weights are shifted by the maximum alone and never divided",
            shifted_only,
        ),
        Mistake(
            "base-two",
            "powers of 2 are taken; this logsumexp is natural",
            backward(weights=from_scores(lambda s, z: (s - z).exp2())),
        ),
        Mistake(
            "scores-unscaled",
            "the scores are made without 1/√D, and the logsumexp is that of "
            "scaled ones",
            backward(weights=lambda q, k, z, c: (q @ k.mT - z).exp()),
        ),
        Mistake(
            "no-scale",
            "the scores are scaled, and the way back is not: 1/√D is a factor "
            "of dquery and of dkey",
            backward(
                dquery=lambda ds, k, c: ds @ k,
                dkey=lambda ds, q, c: ds.mT @ q,
            ),
        ),
        Mistake(
            "key-unscaled",
            "dquery is scaled and dkey is not; 1/√D belongs to both",
            backward(dkey=lambda ds, q, c: ds.mT @ q),
        ),
        Mistake(
            "query-unscaled",
            "dkey is scaled and dquery is not; 1/√D belongs to both",
            backward(dquery=lambda ds, k, c: ds @ k),
        ),
        Mistake(
            "scaled-twice",
            "the factor 1/√D is there twice on the way back",
            backward(
                dquery=lambda ds, k, c: ds @ k * c * c,
                dkey=lambda ds, q, c: ds.mT @ q * c * c,
            ),
        ),
        Mistake(
            "query-overwritten",
            "each tile of keys replaces dquery; every tile of keys adds to it",
            backward(kept=(False, True)),
        ),
        Mistake(
            "key-overwritten",
            "each tile of queries replaces dkey and dvalue; every tile of "
            "queries adds to them",
            backward(kept=(True, False)),
        ),
        Mistake(
            "all-overwritten",
            "each tile replaces the gradients; every tile adds to them",
            backward(kept=(False, False)),
        ),
        Mistake(
            "no-weight",
            "the difference from the average is not multiplied by the weight",
            backward(dscores=lambda w, dw, mean: dw - mean),
        ),
        Mistake(
            "no-softmax",
            "the softmax is skipped: the weights' gradient is not the scores'",
            backward(dscores=lambda w, dw, mean: dw),
        ),
        Mistake(
            "scores-for-weights",
            "dvalue is made with the scores' gradient; the weights are meant",
            backward(dvalue=lambda w, ds, up: ds.mT @ up),
        ),
        Mistake(
            "queries-dropped",
            "the last queries do not fill a tile and are left out",
            backward(rows=whole_only),
        ),
        Mistake(
            "keys-dropped",
            "the last keys do not fill a tile and are left out",
            backward(columns=whole_only),
        ),
        Mistake(
            "descent",
            "all signs are turned: these are steps downhill",
            lambda *given: tuple(-x for x in tiled_backward(*given)),
        ),
        Mistake(
            "whole-matrix",
            "the whole matrix of weights is held at once, or as much as that; "
            "a tile of it is enough",
            at_once,
        ),
    ),
)
