"""Exercise: attention weights and context, with padding masked out.

Source: Bahdanau, Cho and Bengio (2015), section 3.1, equations 5
    and 6, https://arxiv.org/abs/1409.0473
Axes: B batch, T queries, S keys, E value width
"""

import torch

from attnbook.attention import additive
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal, whole


def draw_context(rng: torch.Generator) -> tuple[Case, ...]:
    """One value; then no padding; then padding that bites."""

    def inputs(b, t, s, e):
        return normal(rng, b, t, s), normal(rng, b, s, e)

    even = torch.tensor([5, 5])
    odd = torch.tensor([int(whole(rng, 2, 4)), 5, 1])
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
        Case("in double precision", doubled((scores, value, odd))),
        Case("in half precision", halved((scores, value, odd))),
    )


def real(scores, lengths):
    """Return True where a key is real: (B, 1, S)."""
    return torch.arange(scores.shape[-1]) < lengths[:, None, None]


def looked(weights, value):
    """Return the context of given weights, and the weights."""
    return weights @ value, weights


def filled(number):
    """Return a context whose padding has a large negative score, not -inf."""
    return lambda scores, value, lengths: looked(
        scores.masked_fill(~real(scores, lengths), number).softmax(-1), value
    )


def off_by(one):
    """Return a context that takes each sequence for longer or shorter."""
    return lambda scores, value, lengths: looked(
        scores.masked_fill(~real(scores, lengths + one), -torch.inf).softmax(
            -1
        ),
        value,
    )


check_context = Exercise(
    title="attention weights and context vector",
    stars=2,
    minutes=15,
    section="Never look at padding",
    solution=additive.context,
    returns=("context", "weights"),
    draw=draw_context,
    mistakes=(
        Mistake(
            "padding-unmasked",
            "padding not masked",
            "the padding positions get weight: they are not masked out",
            lambda scores, value, lengths: looked(scores.softmax(-1), value),
        ),
        Mistake(
            "wrong-axis",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            lambda scores, value, lengths: looked(
                scores.masked_fill(~real(scores, lengths), -torch.inf)
                .softmax(1)
                .nan_to_num(),
                value,
            ),
        ),
        Mistake(
            "whole-batch-softmax",
            "softmax over the batch",
            "the softmax runs over the batch; it should run over the keys",
            lambda scores, value, lengths: looked(
                scores.masked_fill(~real(scores, lengths), -torch.inf)
                .softmax(0)
                .nan_to_num(),
                value,
            ),
        ),
        Mistake(
            "masked-after",
            "mask after the softmax",
            "the mask is applied after the softmax, so the remaining weights "
            "no longer sum to 1",
            lambda scores, value, lengths: looked(
                scores.softmax(-1) * real(scores, lengths), value
            ),
        ),
        Mistake(
            "zero-score",
            "padding scores set to 0",
            "the scores of padding are set to 0, and the softmax gives a "
            "score of 0 positive weight; they should be minus infinity",
            lambda scores, value, lengths: looked(
                (scores * real(scores, lengths)).softmax(-1), value
            ),
        ),
        Mistake(
            "inverted-mask",
            "inverted mask",
            "the mask is inverted: only padding gets weight",
            lambda scores, value, lengths: looked(
                scores.masked_fill(real(scores, lengths), -torch.inf).softmax(
                    -1
                ),
                value,
            ),
        ),
        Mistake(
            "one-too-many",
            "one position too many",
            "the first padding position is not masked out: the real positions "
            "are 0 to length - 1",
            off_by(1),
        ),
        Mistake(
            "one-too-few",
            "one position too few",
            "the last real position is masked out: the real positions are 0 "
            "to length - 1",
            off_by(-1),
        ),
        Mistake(
            "first-length-only",
            "first length for all sequences",
            "every sequence is masked with the length of the first one",
            lambda scores, value, lengths: looked(
                scores.masked_fill(
                    ~real(scores, lengths[:1]), -torch.inf
                ).softmax(-1),
                value,
            ),
        ),
        Mistake(
            "sentinel",
            "-1e9 instead of minus infinity",
            "the scores of padding are set to -1e9, and a real score can be "
            "lower still; use minus infinity",
            filled(-1e9),
        ),
        Mistake(
            "small-sentinel",
            "-1e4 instead of minus infinity",
            "the scores of padding are set to -10000, and a real score can be "
            "lower still; use minus infinity",
            filled(-1e4),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "every real position gets the same weight: the scores are not used",
            lambda scores, value, lengths: looked(
                (real(scores, lengths) / lengths[:, None, None])
                .expand_as(scores)
                .to(scores.dtype),
                value,
            ),
        ),
        Mistake(
            "unstable",
            "exponential overflows",
            "the exponentials overflow; subtract the largest score first, or "
            "use `softmax`",
            lambda scores, value, lengths: looked(
                (scores.exp() * real(scores, lengths))
                / (scores.exp() * real(scores, lengths)).sum(-1, keepdim=True),
                value,
            ),
        ),
        Mistake(
            "hard-choice",
            "argmax instead of softmax",
            "the context is the value of the key with the highest score; it "
            "should be the weighted average of all values",
            lambda scores, value, lengths: looked(
                torch.nn.functional.one_hot(
                    scores.masked_fill(
                        ~real(scores, lengths), -torch.inf
                    ).argmax(-1),
                    scores.shape[-1],
                ).to(scores.dtype),
                value,
            ),
        ),
    ),
)
