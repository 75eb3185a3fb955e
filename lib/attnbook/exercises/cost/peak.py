"""Exercise: the most memory at once, with and without strips.

Chapter: chapters/10_cost
Source: none
Axes: B batch, H heads, T queries, S keys, D width of query, key and value
"""

import torch

from attnbook.exercises.cost.answers import ALLOWED, sizes
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole
from attnbook.solutions.cost import peak


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One query; strips that fit and that do not; wide heads, few keys."""

    def given(rows, itemsize=4, **some):
        s = sizes(rng, **some)
        return (*(s[x] for x in "BHTSD"), itemsize, rows)

    few = int(whole(rng, 3, 20, 1))
    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 4, 1)),
        Case("with one head", given(few, B=1, H=1, G=1, T=128)),
        Case("in half precision", given(few, itemsize=2)),
        Case("with a strip of one query", given(1)),
        Case("with strips higher than the text", given(512)),
        Case("with heads wider than there are keys", (2, 3, 50, 7, 64, 4, few)),
    )


def built(make):
    """Return an answer from the numbers of one head."""

    def answer(B, H, T, S, D, itemsize, rows):
        found = make(T, S, D, min(rows, T))
        return [B * H * itemsize * n for n in found]

    return answer


def all_at_once(T, S, D):
    """Return the numbers that one head holds without strips."""
    return T * S + max(T * S, T * D)


check_peak = Exercise(
    title="peak memory, with and without strips",
    stars=2,
    minutes=15,
    section="Memory: the 4096-token example",
    solution=peak,
    returns=("peak",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "scores-only",
            "scores and weights are both there while softmax works; one of "
            "them is counted",
            built(lambda T, S, D, r: (T * S, T * D + r * S)),
        ),
        Mistake(
            "elements",
            "it returns how many numbers are held, not how many bytes",
            lambda *given: peak(*given[:5], 1, given[6]),
        ),
        Mistake(
            "heads-forgotten",
            "the heads are counted as if they came one after the other; one "
            "call computes all of them",
            lambda B, H, *rest: peak(B, 1, *rest),
        ),
        Mistake(
            "one-sequence",
            "the batch is forgotten",
            lambda B, *rest: peak(1, *rest),
        ),
        Mistake(
            "adds-all",
            "scores, weights and output are added up; the scores are gone when "
            "the output comes",
            built(
                lambda T, S, D, r: (2 * T * S + T * D, T * D + 2 * r * S),
            ),
        ),
        Mistake(
            "no-wide-heads",
            "weights and output together can be more than scores and weights: "
            "where heads are wide and keys few",
            built(lambda T, S, D, r: (2 * T * S, T * D + 2 * r * S)),
        ),
        Mistake(
            "no-output",
            "in strips, the output of all queries is there as well",
            built(lambda T, S, D, r: (all_at_once(T, S, D), 2 * r * S)),
        ),
        Mistake(
            "strip-of-output",
            "in strips, the output of one strip is counted; those of all "
            "strips stay",
            built(lambda T, S, D, r: (all_at_once(T, S, D), r * D + 2 * r * S)),
        ),
        Mistake(
            "square-tiles",
            "a strip is as long as there are keys, not as it is high",
            built(lambda T, S, D, r: (all_at_once(T, S, D), T * D + 2 * r * r)),
        ),
        Mistake(
            "cuts-keys",
            "the keys are cut, not the queries; a softmax needs all keys of "
            "its query",
            built(lambda T, S, D, r: (all_at_once(T, S, D), T * D + 2 * T * r)),
        ),
        Mistake(
            "all-strips",
            "the strips are counted together; each goes before the next comes",
            built(lambda T, S, D, r: (all_at_once(T, S, D), T * D + 2 * T * S)),
        ),
        Mistake(
            "inputs-too",
            "queries, keys and values are counted; they are there anyway",
            built(
                lambda T, S, D, r: [
                    n + T * D + 2 * S * D
                    for n in (all_at_once(T, S, D), T * D + 2 * r * S)
                ]
            ),
        ),
        Mistake(
            "higher-than-the-text",
            "a strip has as many rows as asked for, though there are fewer "
            "queries",
            lambda B, H, T, S, D, n, rows: [
                peak(B, H, T, S, D, n, rows)[0],
                B * H * n * (T * D + 2 * rows * S),
            ],
        ),
    ),
)
