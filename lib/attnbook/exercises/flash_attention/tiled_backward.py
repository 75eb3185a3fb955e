"""Exercise: the way back in tiles, from the saved logsumexp.

Chapter: chapters/11_flash_attention
Source: Dao et al. (2022), appendix B.4, algorithm 4,
    https://arxiv.org/abs/2205.14135, with one logsumexp a row as in Dao (2023),
    section 3.1, algorithm 2, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width
"""

from attnbook.exercises.exercise import ATTENTION, Exercise, Mistake
from attnbook.exercises.flash_attention.answers import backward, whole_only
from attnbook.exercises.flash_attention.backward_answers import (
    at_once,
    from_scores,
    of_the_tile,
    shifted_only,
)
from attnbook.exercises.flash_attention.backward_cases import draw
from attnbook.solutions.flash_attention import tiled_backward

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
