"""Exercise: attention weights and context, with padding masked out.

Source: Bahdanau, Cho and Bengio (2015), section 3.1, equations 5
    and 6, https://arxiv.org/abs/1409.0473
Axes: B batch, T queries, S keys, E value width
"""

import torch
from torch.nn import functional

from attnbook.attention import additive
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import (
    draw_integers,
    draw_normal,
    to_double,
    to_half,
)


def draw_context(rng: torch.Generator) -> tuple[Case, ...]:
    """One value; then no padding; then padding that bites."""

    def inputs(b, t, s, e):
        return draw_normal(rng, b, t, s), draw_normal(rng, b, s, e)

    even = torch.tensor([5, 5])
    odd = torch.tensor([int(draw_integers(rng, 2, 4)), 5, 1])
    scores, value = inputs(3, 4, 5, 7)
    padded = torch.arange(5) >= odd[:, None]
    loud = scores.masked_fill(padded[:, None], 30.0)
    low = scores.masked_fill(~padded[:, None], -2e9)
    return (
        Case("with one value", (*inputs(1, 1, 1, 3), torch.tensor([1]))),
        Case("without padding", (*inputs(2, 3, 5, 7), even), gradient=True),
        Case("with padding", (scores, value, odd), gradient=True),
        Case("with the highest scores on padding", (loud, value, odd)),
        Case(
            "with huge values on padding",
            (scores, value.masked_fill(padded[:, :, None], 1e30), odd),
        ),
        Case("with very large scores", (scores * 300, value, odd)),
        Case("with very low scores", (low, value, odd)),
        Case("in double precision", to_double((scores, value, odd)), asked=False),
        Case("in half precision", to_half((scores, value, odd)), asked=False),
    )


def average_values(weigh):
    """Return a context with weights from the scores and a mask of real keys."""

    def answer(scores, value, lengths):
        real = torch.arange(scores.shape[-1]) < lengths[:, None, None]
        weights = weigh(scores, real)
        return weights @ value, weights

    return answer


def mask_padding(scores, real, number=-torch.inf):
    """Return the scores with a number where a key is padding."""
    return scores.masked_fill(~real, number)


def compute_unstable_softmax(scores, real):
    """Return weights without the shift by the largest score."""
    exponentials = scores.exp() * real
    return exponentials / exponentials.sum(-1, keepdim=True)


RIGHT = average_values(lambda s, real: mask_padding(s, real).softmax(-1))

check_context = Exercise(
    title="attention weights and context vector",
    stars=2,
    minutes=15,
    section="Masking padding",
    solution=additive.context,
    returns=("context", "weights"),
    draw=draw_context,
    mistakes=(
        Mistake(
            "padding-unmasked",
            "padding not masked",
            "the padding positions get weight: they are not masked out",
            average_values(lambda s, real: s.softmax(-1)),
        ),
        Mistake(
            "wrong-axis",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            average_values(
                lambda s, real: mask_padding(s, real).softmax(1).nan_to_num()
            ),
        ),
        Mistake(
            "whole-batch-softmax",
            "softmax over the batch",
            "the softmax runs over the batch; it should run over the keys",
            average_values(
                lambda s, real: mask_padding(s, real).softmax(0).nan_to_num()
            ),
        ),
        Mistake(
            "masked-after",
            "mask after the softmax",
            "the mask is applied after the softmax, so the remaining weights "
            "no longer sum to 1",
            average_values(lambda s, real: s.softmax(-1) * real),
        ),
        Mistake(
            "zero-score",
            "padding scores set to 0",
            "the scores of padding are set to 0, but after the softmax, a "
            "score of 0 still has a positive weight; set them to minus "
            "infinity",
            average_values(lambda s, real: (s * real).softmax(-1)),
        ),
        Mistake(
            "inverted-mask",
            "inverted mask",
            "the mask is inverted: only padding gets weight",
            average_values(lambda s, real: mask_padding(s, ~real).softmax(-1)),
        ),
        Mistake(
            "one-too-many",
            "one position too many",
            "the first padding position is not masked out: the real positions "
            "are 0 to length - 1",
            lambda scores, value, lengths: RIGHT(scores, value, lengths + 1),
        ),
        Mistake(
            "one-too-few",
            "one position too few",
            "the last real position is masked out: the real positions are 0 "
            "to length - 1",
            lambda scores, value, lengths: RIGHT(scores, value, lengths - 1),
        ),
        Mistake(
            "first-length-only",
            "first length for all sequences",
            "every sequence is masked with the length of the first one",
            lambda scores, value, lengths: RIGHT(scores, value, lengths[:1]),
        ),
        Mistake(
            "sentinel",
            "-1e9 instead of minus infinity",
            "the scores of padding are set to -1e9, and a real score can be "
            "lower still; use minus infinity",
            average_values(lambda s, real: mask_padding(s, real, -1e9).softmax(-1)),
        ),
        Mistake(
            "small-sentinel",
            "-1e4 instead of minus infinity",
            "the scores of padding are set to -10000, and a real score can be "
            "lower still; use minus infinity",
            average_values(lambda s, real: mask_padding(s, real, -1e4).softmax(-1)),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "every real position gets the same weight: the scores are not used",
            average_values(lambda s, real: mask_padding(0 * s, real).softmax(-1)),
        ),
        Mistake(
            "unstable",
            "exponential overflows",
            "the exponentials overflow; subtract the largest score first, or "
            "use `softmax`",
            average_values(compute_unstable_softmax),
        ),
        Mistake(
            "hard-choice",
            "argmax instead of softmax",
            "the context is the value of the key with the highest score; it "
            "should be the weighted average of all values",
            average_values(
                lambda s, real: functional.one_hot(
                    mask_padding(s, real).argmax(-1), s.shape[-1]
                ).to(s.dtype)
            ),
        ),
    ),
)
