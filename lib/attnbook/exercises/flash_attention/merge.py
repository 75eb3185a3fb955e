"""Exercise: attention to all keys, from attention to two parts of them.

Source: Dao et al. (2022), section 3.1, https://arxiv.org/abs/2205.14135, for
    two parts with their logsumexp
Axes: T queries, E value width; leading axes stay
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.flash_attention.merge_answers import (
    by,
    by_maximum,
    by_ratio,
    covered,
    shares,
    unshifted,
)
from attnbook.exercises.inputs import doubled, normal, whole
from attnbook.exercises.solutions.flash_attention import merge


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Equal parts; unequal ones; then far ones; then empty ones."""

    def parts(*lead, t=3, e=5, size=1.5):
        def one():
            return normal(rng, *lead, t, e), size * normal(rng, *lead, t)

        return *one(), *one()

    def emptied(given, which):
        found = [x.clone() for x in given]
        for part in which:
            found[2 * part][1] = 0.0
            found[2 * part + 1][1] = -torch.inf
        return tuple(found)

    even = list(parts(t=1, e=2))
    even[3] = even[1].clone()
    usual = parts()
    high, low = (
        tuple(
            x + sign * (120 + whole(rng, 0, 2, 3)) if i % 2 else x
            for i, x in enumerate(parts())
        )
        for sign in (1, -1)
    )
    far = list(parts())
    far[1] = far[1] + torch.tensor([200.0, 0.0, -200.0])
    return (
        Case("with two parts of the same weight", tuple(even)),
        Case("with one query", parts(t=1)),
        Case("with 3 queries", usual),
        Case("with as many queries as values are wide", parts(t=4, e=4)),
        Case("with a batch of 2 and 3 heads", parts(2, 3, t=5, e=7)),
        Case("with a logsumexp near 120", high),
        Case("with a logsumexp near -120", low),
        Case("with parts of very different weight", tuple(far)),
        Case("with an empty first part", emptied(usual, [0])),
        Case("with an empty second part", emptied(parts(), [1])),
        Case("with two empty parts", emptied(parts(), [0, 1])),
        Case("in double precision", doubled(parts(2))),
    )


check_merge = Exercise(
    title="merge two partial results",
    stars=2,
    minutes=10,
    section="Two halves make a whole",
    solution=merge,
    returns=("output", "lse"),
    draw=draw,
    mistakes=(
        Mistake(
            "plain-mean",
            "plain mean of the outputs",
            "the two outputs are weighted equally; each should be weighted by "
            "exp of its logsumexp",
            by(lambda a, b: torch.full_like(a, 0.5)),
        ),
        Mistake(
            "sum",
            "sum of the outputs",
            "the outputs are added; both are averages already, so their "
            "weighted average is needed",
            lambda oa, la, ob, lb: (oa + ob, torch.logaddexp(la, lb)),
        ),
        Mistake(
            "shares-exchanged",
            "weights exchanged",
            "each output is multiplied by the weight of the other part",
            by(lambda a, b: shares(b, a)),
        ),
        Mistake(
            "winner-takes-all",
            "only the larger part",
            "only the part with the larger logsumexp is used",
            by(lambda a, b: (a >= b).to(a.dtype)),
        ),
        Mistake(
            "ratio-of-logarithms",
            "weights from logarithms",
            "the logsumexps themselves are used as weights; they are "
            "logarithms of the weights",
            by(by_ratio),
        ),
        Mistake(
            "lse-added",
            "logsumexps added",
            "the logsumexps are added, which multiplies the totals; use "
            "logaddexp",
            by(lse=lambda a, b: a + b),
        ),
        Mistake(
            "lse-maximum",
            "maximum of the logsumexps",
            "the larger logsumexp is returned; the total of the other part is "
            "missing",
            by(lse=torch.maximum),
        ),
        Mistake(
            "lse-mean",
            "mean of the logsumexps",
            "the mean of the logsumexps is returned; use logaddexp",
            by(lse=lambda a, b: (a + b) / 2),
        ),
        Mistake(
            "lse-first",
            "first logsumexp only",
            "the logsumexp of the first part is returned; use logaddexp",
            by(lse=lambda a, b: a),
        ),
        Mistake(
            "lse-unshifted",
            "maximum not added back",
            "the maximum that was subtracted is not added back to the "
            "logsumexp",
            by_maximum(log=False),
        ),
        Mistake(
            "not-divided",
            "weights not normalized",
            "the weights are shifted by the maximum, but they are not divided "
            "by their sum",
            by_maximum(divide=False),
        ),
        Mistake(
            "base-two",
            "powers of 2 instead of e",
            "it uses powers of 2; these logarithms are natural",
            by(
                lambda a, b: shares(a * 0.6931472, b * 0.6931472),
                torch.logaddexp2,
            ),
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "the exponential is applied to a logsumexp without a shift, so it "
            "overflows or underflows; only the difference of the two "
            "logsumexps is needed",
            unshifted,
        ),
        Mistake(
            "empty-nan",
            "NaN in an empty row",
            "where both parts are empty, -inf - -inf gives NaN; the output "
            "should be 0",
            by_maximum(guard=False),
        ),
        Mistake(
            "empty-finite",
            "finite logsumexp of an empty row",
            "NaN is replaced everywhere, so the logsumexp of two empty parts "
            "becomes finite; it should be -inf",
            covered,
        ),
    ),
)
