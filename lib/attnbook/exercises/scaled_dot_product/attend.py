"""Exercise: scaled dot-product attention with a mask.

Source: Vaswani et al. (2017), section 3.2.1, equation 1,
    https://arxiv.org/abs/1706.03762; the mask's rules are this book's
Axes: T queries, S keys, D width of query and key, E value width
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half
from attnbook.exercises.scaled_dot_product.weights import weights


def attend(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B T E"]:
    """Return each query's weighted average of the values it can attend to."""
    if mask is None:
        return weights(query, key) @ value
    scale = query.shape[-1] ** -0.5
    scores = query * scale @ key.transpose(-2, -1)
    # Chapter 3's softmax: an empty row gives zeros, and passes back zeros.
    return masked_softmax(scores, mask) @ value


def draw_attend(rng: torch.Generator) -> tuple[Case, ...]:
    """One key; no mask; masks; an empty row; then what hides a mistake."""

    def inputs(*lead, t=3, s=5, d=7, e=11):
        sizes = (t, d), (s, d), (s, e)
        return tuple(draw_normal(rng, *lead, *size) for size in sizes)

    def some(*shape):
        mask = draw_normal(rng, *shape) > 0
        mask[..., 0], mask[..., 1] = True, False
        return mask

    single = inputs(t=1, s=1, d=3, e=2)
    usual, heads = inputs(), inputs(2, 3)
    empty = some(2, 1, 3, 5)
    empty[1, :, 2] = False
    loud = usual[0], usual[1].clone(), usual[2]
    loud[1][1] = 30 * usual[0].mean(0)
    # One key is left to see: its score lies below any sentinel, and the others'
    # lie so far above it that no sentinel, added, brings them down.
    along = draw_normal(rng, 7).sign()
    only = torch.arange(5) == 2
    side = torch.where(only, -1.0, 1.0)[:, None]
    low = 4e4 * along.expand(3, 7), 4e4 * side * along, usual[2]
    views = tuple(x.transpose(1, 2) for x in inputs(2, 5, t=4, s=4))
    return (
        Case("with one key", (*single, None)),
        Case("without a mask", (*usual, None), gradient=True),
        Case("with all sizes equal", (*inputs(t=4, s=4, d=4, e=4), None)),
        Case("with a mask", (*usual, some(3, 5)), gradient=True),
        Case("with heads that share a mask", (*heads, some(2, 1, 3, 5))),
        Case("with one mask for all queries", (*heads, some(2, 1, 1, 5))),
        Case("with more queries than keys", (*inputs(2, t=5, s=3), some(5, 3))),
        Case("with views and one mask for all heads", (*views, some(5, 5))),
        Case("with a query that can attend to no key", (*heads, empty), True),
        Case("with the highest score masked out", (*loud, some(3, 5))),
        Case("with a very low score", (*low, only.expand(3, 5))),
        Case("in double precision", (*to_double(heads), empty), asked=False),
        Case("in half precision", (*to_half(heads), empty), asked=False),
    )


def compute_scores(query, key):
    """Return the scaled products."""
    return query * query.shape[-1] ** -0.5 @ key.mT


def change_masked_weights(weigh):
    """Return attention whose weights come of scores and mask, if there is one.

    Without a mask it is right.
    """

    def answer(query, key, value, mask):
        s = compute_scores(query, key)
        return (s.softmax(-1) if mask is None else weigh(s, mask)) @ value

    return answer


def fill_masked(number):
    """Return attention whose hidden keys have a finite score."""
    return change_masked_weights(
        lambda s, mask: s.masked_fill(~mask, number(s.dtype)).softmax(-1)
    )


def make_bias(s, mask):
    """Return a bias of 0 where the mask is True, minus infinity elsewhere."""
    return torch.zeros(mask.shape, dtype=s.dtype).masked_fill(~mask, -torch.inf)


def zero_empty_rows(s, mask):
    """Return right weights; an empty row is 0."""
    empty = ~mask.any(-1, keepdim=True)
    hidden = s.masked_fill(~mask, -torch.inf).masked_fill(empty, 0.0)
    return hidden.softmax(-1).masked_fill(empty, 0.0)


def change_attention(factor=lambda q, k, v: 1.0, of=lambda k, v: v):
    """Return attention with other scores, or an average of something else."""

    def answer(query, key, value, mask):
        query = query * factor(query, key, value)
        return attend(query, key, of(key, value), mask)

    return answer


check_attend = Exercise(
    title="attention with a mask",
    stars=2,
    minutes=10,
    section="Masks and biases",
    solution=attend,
    returns=("output",),
    draw=draw_attend,
    mistakes=(
        Mistake(
            "no-scale",
            "no division by √D",
            "the scores are not divided by √D",
            change_attention(lambda q, k, v: q.shape[-1] ** 0.5),
        ),
        Mistake(
            "scaled-by-value-width",
            "division by √E, not by √D",
            "the scores are divided by √E, the root of the value width; they "
            "should be divided by √D",
            change_attention(lambda q, k, v: (q.shape[-1] / v.shape[-1]) ** 0.5),
        ),
        Mistake(
            "scaled-by-width",
            "division by D, not by √D",
            "the scores are divided by D; they should be divided by √D",
            change_attention(lambda q, k, v: q.shape[-1] ** -0.5),
        ),
        Mistake(
            "scaled-after",
            "division after the softmax",
            "the weights are divided by √D after the softmax; the scores "
            "should be divided before it",
            lambda q, k, v, mask: (
                attend(q * q.shape[-1] ** 0.5, k, v, mask) * q.shape[-1] ** -0.5
            ),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "all keys that are not masked out get the same weight: the scores "
            "are not used",
            change_attention(lambda q, k, v: 0.0),
        ),
        Mistake(
            "keys-averaged",
            "keys instead of values",
            "the keys are averaged; the values should be",
            change_attention(of=lambda k, v: k),
        ),
        Mistake(
            "unmasked",
            "mask not used",
            "the mask is not used",
            change_masked_weights(lambda s, mask: s.softmax(-1)),
        ),
        Mistake(
            "inverted-mask",
            "inverted mask",
            "the mask is inverted: True should mean that a query can attend to a key",
            change_masked_weights(lambda s, mask: zero_empty_rows(s, ~mask)),
        ),
        Mistake(
            "masked-after",
            "mask after the softmax",
            "the mask is applied after the softmax, so the remaining weights "
            "no longer sum to 1",
            change_masked_weights(lambda s, mask: s.softmax(-1) * mask),
        ),
        Mistake(
            "zero-score",
            "masked scores set to 0",
            "masked scores are set to 0, but after the softmax, a score of 0 "
            "still has a positive weight; set them to minus infinity",
            change_masked_weights(lambda s, mask: (s * mask).softmax(-1)),
        ),
        Mistake(
            "mask-added",
            "mask added to the scores",
            "the mask is added as 1 and 0, which shifts the scores and masks "
            "nothing out",
            change_masked_weights(lambda s, mask: (s + mask).softmax(-1)),
        ),
        Mistake(
            "sentinel",
            "-1e9 instead of minus infinity",
            "masked scores are set to -1e9, so a query that can attend to no "
            "key gets uniform weights; use minus infinity, and return zeros "
            "for such a query",
            fill_masked(lambda dtype: -1e9),
        ),
        Mistake(
            "empty-uniform",
            "uniform weights in an empty row",
            "a query that can attend to no key gets uniform weights, because "
            "the lowest finite number is the same score for all keys; its "
            "output should be zeros",
            fill_masked(lambda dtype: torch.finfo(dtype).min),
        ),
        Mistake(
            "empty-nan",
            "NaN in an empty row",
            "a query that can attend to no key gets NaN, because the softmax "
            "is applied to minus infinities only; its output should be zeros",
            fill_masked(lambda dtype: -torch.inf),
        ),
        Mistake(
            "empty-nan-gradient",
            "NaN gradient of an empty row",
            "the NaN of a query that can attend to no key is replaced in the "
            "output, but its gradient is still NaN: fill in minus infinity "
            "with `masked_fill` instead of adding it",
            change_masked_weights(
                lambda s, mask: (s + make_bias(s, mask)).softmax(-1).nan_to_num()
            ),
        ),
        Mistake(
            "wrong-axis",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            lambda q, k, v, mask: (
                (
                    compute_scores(q, k).softmax(-2)
                    if mask is None
                    else zero_empty_rows(
                        compute_scores(q, k).mT,
                        mask.expand_as(compute_scores(q, k)).mT,
                    ).mT
                )
                @ v
            ),
        ),
        Mistake(
            "weights",
            "weights instead of the output",
            "it returns the weights; the values are not averaged",
            lambda q, k, v, mask: (
                compute_scores(q, k).softmax(-1)
                if mask is None
                else zero_empty_rows(compute_scores(q, k), mask)
            ),
        ),
    ),
)
