"""Exercise: attention to all keys, from attention to two parts of them.

Chapter: chapters/11_flash_attention
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
from attnbook.solutions.flash_attention import merge


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
    title="two parts make a whole",
    stars=2,
    minutes=10,
    section="Two halves make a whole",
    solution=merge,
    returns=("output", "lse"),
    draw=draw,
    mistakes=(
        Mistake(
            "plain-mean",
            "the two outputs count alike; each counts by exp of its logsumexp",
            by(lambda a, b: torch.full_like(a, 0.5)),
        ),
        Mistake(
            "sum",
            "the outputs are added; both are averages already, and averages "
            "are averaged",
            lambda oa, la, ob, lb: (oa + ob, torch.logaddexp(la, lb)),
        ),
        Mistake(
            "shares-exchanged",
            "each part counts by the other's weight",
            by(lambda a, b: shares(b, a)),
        ),
        Mistake(
            "winner-takes-all",
            "the part with the larger logsumexp takes all",
            by(lambda a, b: (a >= b).to(a.dtype)),
        ),
        Mistake(
            "ratio-of-logarithms",
            "the logsumexps themselves are taken for weights; they are "
            "logarithms of weights",
            by(by_ratio),
        ),
        Mistake(
            "lse-added",
            "the logsumexps are added, which multiplies the totals",
            by(lse=lambda a, b: a + b),
        ),
        Mistake(
            "lse-maximum",
            "the larger logsumexp is returned; the other part has a total too",
            by(lse=torch.maximum),
        ),
        Mistake(
            "lse-mean",
            "the mean of the logsumexps is returned",
            by(lse=lambda a, b: (a + b) / 2),
        ),
        Mistake(
            "lse-first",
            "the first part's logsumexp is returned",
            by(lse=lambda a, b: a),
        ),
        Mistake(
            "lse-unshifted",
            "the maximum that was taken off is not put back on the logsumexp",
            by_maximum(log=False),
        ),
        Mistake(
            "not-divided",
            "the weights are shifted by the maximum and do not sum to 1; "
            "divide by their sum",
            by_maximum(divide=False),
        ),
        Mistake(
            "base-two",
            "powers of 2 are taken; these logarithms are natural",
            by(
                lambda a, b: shares(a * 0.6931472, b * 0.6931472),
                torch.logaddexp2,
            ),
        ),
        Mistake(
            "no-shift",
            "exp is taken of a logsumexp as it is, and over- or underflows; "
            "only the difference of the two is needed",
            unshifted,
        ),
        Mistake(
            "empty-nan",
            "where both parts are empty, -inf - -inf is NaN; the output of "
            "nothing is 0",
            by_maximum(guard=False),
        ),
        Mistake(
            "empty-finite",
            "NaN is covered up, and the logsumexp of two empty parts, which "
            "is -inf, becomes a number with it",
            covered,
        ),
    ),
)
