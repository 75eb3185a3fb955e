"""Exercise: the gradient of attention, by hand.

Source: derived in the chapter
Axes: T queries, S keys, D width of query and key, E value width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import ATTENTION, Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, to_double
from attnbook.exercises.scaled_dot_product.weights import weights

AUTOGRAD = {"grad", "backward", "make_dual", "softmax_backward_data"}


def gradient(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    upstream: Float[Tensor, "*B T E"],
) -> tuple[Float[Tensor, "*B T D"], Float[Tensor, "*B S D"], Float[Tensor, "*B S E"]]:
    """Return a loss's gradients on query, key and value."""
    scale, w = query.shape[-1] ** -0.5, weights(query, key)
    dvalue = w.transpose(-2, -1) @ upstream
    dweights = upstream @ value.transpose(-2, -1)
    average = (w * dweights).sum(dim=-1, keepdim=True)
    dscores = w * (dweights - average) * scale
    return dscores @ key, dscores.transpose(-2, -1) @ query, dvalue


def draw_large_scores(rng: torch.Generator, t: int, s: int) -> tuple[Tensor, ...]:
    """Return scores of 3780 and 0, whose powers overflow if not shifted.

    Values and upstream are whole numbers: the gradient of the scores is 0, and
    no order of summing adds a rounding error to it.
    """
    key = 100 * torch.eye(s, 7)
    value, upstream = (
        draw_integers(rng, -4, 4, s, 11),
        draw_integers(rng, -4, 4, t, 11),
    )
    return (
        key[draw_integers(rng, 0, s - 1, t)],
        key,
        value.float(),
        upstream.float(),
    )


def draw_gradient(rng: torch.Generator) -> tuple[Case, ...]:
    """One key, where only the value learns; then T ≠ S; then batches."""

    def inputs(*lead, t=3, s=5, d=7, e=11):
        sizes = (t, d), (s, d), (s, e), (t, e)
        return tuple(draw_normal(rng, *lead, *size) for size in sizes)

    usual = inputs()
    return (
        Case("with one key", inputs(t=1, s=1, d=3, e=2)),
        Case("with one query and two keys", inputs(t=1, s=2, d=1, e=2)),
        Case("with 3 queries and 5 keys", usual),
        Case("with all sizes equal", inputs(t=4, s=4, d=4, e=4)),
        Case("with a batch of 2 and 3 heads", inputs(2, 3, t=5, s=3)),
        Case("with transposed views", tuple(x.mT.clone().mT for x in usual)),
        Case("with one key far ahead of the others", draw_large_scores(rng, 3, 5)),
        Case("in double precision", to_double(usual), asked=False),
    )


def differentiate_without_scale(q, k, v, upstream):
    """Return the gradient of attention without the division."""
    root = q.shape[-1] ** 0.5
    dquery, dkey, dvalue = gradient(q * root, k, v, upstream)
    return dquery * root, dkey, dvalue


check_gradient = Exercise(
    title="gradient of attention",
    stars=3,
    minutes=20,
    section="The gradient, line by line",
    solution=gradient,
    returns=("dquery", "dkey", "dvalue"),
    draw=draw_gradient,
    # Difference quotients of 1,031 positions would be stopped, not judged.
    without=frozenset({"long"}),
    allowed="Everything is allowed but autograd and a ready-made attention.",
    forbidden=ATTENTION | AUTOGRAD,
    mistakes=(
        Mistake(
            "no-average",
            "average not subtracted",
            "the weighted average of the weights' gradients is not subtracted",
            "(dweights - average) → dweights",
        ),
        Mistake(
            "entry-by-entry",
            "softmax treated as elementwise",
            "the softmax is differentiated as an elementwise function, w(1 - "
            "w); each weight depends on every score",
            "w * (dweights - average) → w * (1 - w) * dweights",
        ),
        Mistake(
            "no-softmax",
            "softmax gradient skipped",
            "the gradient of the softmax is skipped: the gradient of the "
            "weights is used as that of the scores",
            "w * (dweights - average) → dweights",
        ),
        Mistake(
            "no-weight",
            "not multiplied by the weights",
            "the difference from the average is not multiplied by the weights",
            "w * (dweights → (dweights",
        ),
        Mistake(
            "plain-mean",
            "plain mean subtracted",
            "the plain mean is subtracted; it should be the average weighted "
            "by the weights",
            "(w * dweights).sum( → dweights.mean(",
        ),
        Mistake(
            "wrong-axis",
            "average over the queries",
            "the average is taken over the queries; it should be taken over "
            "the keys, for each query",
            "sum(dim=-1 → sum(dim=-2",
        ),
        Mistake(
            "no-scale",
            "no 1/√D in the gradients",
            "the gradients lack the factor 1/√D, which belongs to both "
            "`dquery` and `dkey`",
            "average) * scale → average)",
        ),
        Mistake(
            "key-unscaled",
            "dkey not scaled",
            "`dquery` is scaled, but `dkey` is not; the factor 1/√D belongs to both",
            "dscores.transpose(-2, -1) @ query "
            "→ dscores.transpose(-2, -1) @ query / scale",
        ),
        Mistake(
            "scaled-twice",
            "scaled twice",
            "the gradients contain the factor 1/√D twice",
            "* scale → * scale**2",
        ),
        Mistake(
            "unscaled-attention",
            "gradient of unscaled attention",
            "this is the gradient of attention without the division by √D",
            differentiate_without_scale,
        ),
        Mistake(
            "untransposed",
            "dkey not transposed",
            "`dkey` is summed over the keys; it should be summed over the queries",
            "dscores.transpose(-2, -1) @ query → dscores @ query",
        ),
        Mistake(
            "value-untransposed",
            "dvalue not transposed",
            "`dvalue` is summed over the keys; it should be summed over the queries",
            "w.transpose(-2, -1) @ → w @",
        ),
        Mistake(
            "descent",
            "wrong sign",
            "all signs are wrong: these are the negative gradients",
            lambda q, k, v, up: tuple(-x for x in gradient(q, k, v, up)),
        ),
        Mistake(
            "detached-weights",
            "weights treated as constants",
            "the weights are treated as constants, so queries and keys get no gradient",
            "* scale → * 0",
        ),
    ),
)
