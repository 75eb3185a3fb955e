"""Exercise: the tiled backward pass from the saved logsumexp.

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
from attnbook.exercises.solutions.flash_attention import tiled_backward

check_tiled_backward = Exercise(
    title="tiled backward pass",
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
            "average not subtracted",
            "the weighted average of the gradients, upstream · output, is not "
            "subtracted",
            backward(dscores=lambda w, dw, mean: w * dw),
        ),
        Mistake(
            "average-of-the-tile",
            "average over one tile",
            "the average is taken over the keys of one tile; it runs over all "
            "keys and equals upstream · output",
            backward(dscores=of_the_tile),
        ),
        Mistake(
            "average-of-upstream",
            "upstream · upstream subtracted",
            "upstream · upstream is subtracted; it should be upstream · output",
            backward(mean=lambda o, up: (up * up).sum(-1, keepdim=True)),
        ),
        Mistake(
            "average-unsummed",
            "mean over the value width",
            "the mean of upstream · output over the value width is "
            "subtracted; it should be the sum",
            backward(mean=lambda o, up: (up * o).mean(-1, keepdim=True)),
        ),
        Mistake(
            "average-added",
            "average added",
            "the average is added; it should be subtracted",
            backward(dscores=lambda w, dw, mean: w * (dw + mean)),
        ),
        Mistake(
            "softmax-of-the-tile",
            "softmax of each tile",
            "each tile has its own softmax; a weight is exp(score - "
            "logsumexp), over all keys",
            backward(weights=from_scores(lambda s, z: s.softmax(-1))),
        ),
        Mistake(
            "lse-divides",
            "divided by the logsumexp",
            "the exponential is divided by the logsumexp, which is a "
            "logarithm; subtract it from the score first",
            backward(weights=from_scores(lambda s, z: s.exp() / z)),
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "exp(score) / exp(logsumexp) is right mathematically, but it "
            "overflows; subtract first",
            backward(weights=from_scores(lambda s, z: s.exp() / z.exp())),
        ),
        Mistake(
            "maximum-for-lse",
            "maximum instead of logsumexp",
            "the weights are shifted by the maximum and never divided by "
            "their total; subtract the logsumexp",
            shifted_only,
        ),
        Mistake(
            "base-two",
            "powers of 2 instead of e",
            "it uses powers of 2; this logsumexp is a natural logarithm",
            backward(weights=from_scores(lambda s, z: (s - z).exp2())),
        ),
        Mistake(
            "scores-unscaled",
            "scores without the scale",
            "the scores are recomputed without 1/√D, but the logsumexp is "
            "that of the scaled scores",
            backward(weights=lambda q, k, z, c: (q @ k.mT - z).exp()),
        ),
        Mistake(
            "no-scale",
            "no 1/√D in the gradients",
            "the gradients lack the factor 1/√D, which belongs to both dquery "
            "and dkey",
            backward(
                dquery=lambda ds, k, c: ds @ k,
                dkey=lambda ds, q, c: ds.mT @ q,
            ),
        ),
        Mistake(
            "key-unscaled",
            "dkey not scaled",
            "dquery is scaled, but dkey is not; the factor 1/√D belongs to "
            "both",
            backward(dkey=lambda ds, q, c: ds.mT @ q),
        ),
        Mistake(
            "query-unscaled",
            "dquery not scaled",
            "dkey is scaled, but dquery is not; the factor 1/√D belongs to "
            "both",
            backward(dquery=lambda ds, k, c: ds @ k),
        ),
        Mistake(
            "scaled-twice",
            "scaled twice",
            "the gradients contain the factor 1/√D twice",
            backward(
                dquery=lambda ds, k, c: ds @ k * c * c,
                dkey=lambda ds, q, c: ds.mT @ q * c * c,
            ),
        ),
        Mistake(
            "query-overwritten",
            "dquery overwritten",
            "each tile of keys overwrites dquery; it should be added up over "
            "the tiles",
            backward(kept=(False, True)),
        ),
        Mistake(
            "key-overwritten",
            "dkey and dvalue overwritten",
            "each tile of queries overwrites dkey and dvalue; they should be "
            "added up over the tiles",
            backward(kept=(True, False)),
        ),
        Mistake(
            "all-overwritten",
            "all gradients overwritten",
            "each tile overwrites the gradients; they should be added up over "
            "the tiles",
            backward(kept=(False, False)),
        ),
        Mistake(
            "no-weight",
            "not multiplied by the weights",
            "the difference from the average is not multiplied by the weights",
            backward(dscores=lambda w, dw, mean: dw - mean),
        ),
        Mistake(
            "no-softmax",
            "softmax gradient skipped",
            "the gradient of the softmax is skipped: the gradient of the "
            "weights is not that of the scores",
            backward(dscores=lambda w, dw, mean: dw),
        ),
        Mistake(
            "scores-for-weights",
            "dvalue from the score gradients",
            "dvalue is computed with the gradients of the scores; it should "
            "use the weights",
            backward(dvalue=lambda w, ds, up: ds.mT @ up),
        ),
        Mistake(
            "queries-dropped",
            "last queries dropped",
            "the last queries, which do not fill a tile, are left out",
            backward(rows=whole_only),
        ),
        Mistake(
            "keys-dropped",
            "last keys dropped",
            "the last keys, which do not fill a tile, are left out",
            backward(columns=whole_only),
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
            at_once,
        ),
    ),
)
