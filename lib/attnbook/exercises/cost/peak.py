"""Exercise: peak memory, with and without query chunks.

Axes: B batch, H heads, T queries, S keys, D width of query, key and value
"""

import torch

from attnbook.exercises.cost.answers import ALLOWED, sizes
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole
from attnbook.exercises.solutions.cost import peak


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One query; chunks that divide T or not; wide heads, few keys."""

    def given(rows, itemsize=4, **some):
        s = sizes(rng, **some)
        return (*(s[x] for x in "BHTSD"), itemsize, rows)

    few = int(whole(rng, 3, 20, 1))
    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 4, 1)),
        Case("with one head", given(few, B=1, H=1, G=1, T=128)),
        Case("in half precision", given(few, itemsize=2)),
        Case("with chunks of one query", given(1)),
        Case("with chunks longer than the sequence", given(512)),
        Case("with heads wider than there are keys", (2, 3, 50, 7, 64, 4, few)),
    )


def built(make):
    """Return an answer from the numbers of one head."""

    def answer(B, H, T, S, D, itemsize, rows):
        found = make(T, S, D, min(rows, T))
        return [B * H * itemsize * n for n in found]

    return answer


def all_at_once(T, S, D):
    """Return the elements that one head holds without chunks."""
    return T * S + max(T * S, T * D)


check_peak = Exercise(
    title="peak memory, with and without query chunks",
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
            "weights not counted",
            "only the scores are counted; during the softmax, scores and "
            "weights are in memory together",
            built(lambda T, S, D, r: (T * S, T * D + r * S)),
        ),
        Mistake(
            "elements",
            "elements instead of bytes",
            "it returns the number of elements in memory, not the number of "
            "bytes",
            lambda *given: peak(*given[:5], 1, given[6]),
        ),
        Mistake(
            "heads-forgotten",
            "number of heads missing",
            "the memory of only one head is counted; one call computes all "
            "heads at once",
            lambda B, H, *rest: peak(B, 1, *rest),
        ),
        Mistake(
            "one-sequence",
            "batch size missing",
            "the batch size is not counted",
            lambda B, *rest: peak(1, *rest),
        ),
        Mistake(
            "adds-all",
            "everything added",
            "scores, weights and output are added; the scores are freed "
            "before the output is allocated",
            built(
                lambda T, S, D, r: (2 * T * S + T * D, T * D + 2 * r * S),
            ),
        ),
        Mistake(
            "no-wide-heads",
            "wide heads not considered",
            "it is assumed that scores and weights always need the most; "
            "where heads are wide and keys are few, weights and output need "
            "more",
            built(lambda T, S, D, r: (2 * T * S, T * D + 2 * r * S)),
        ),
        Mistake(
            "no-output",
            "output missing",
            "for query chunks, the output of all queries is in memory as well",
            built(lambda T, S, D, r: (all_at_once(T, S, D), 2 * r * S)),
        ),
        Mistake(
            "strip-of-output",
            "output of one chunk only",
            "for query chunks, only the output of one chunk is counted; the "
            "outputs of all chunks stay in memory",
            built(lambda T, S, D, r: (all_at_once(T, S, D), r * D + 2 * r * S)),
        ),
        Mistake(
            "square-tiles",
            "square chunk of scores",
            "a chunk's scores are counted as rows · rows; they have one "
            "column for each key",
            built(lambda T, S, D, r: (all_at_once(T, S, D), T * D + 2 * r * r)),
        ),
        Mistake(
            "cuts-keys",
            "keys divided into chunks",
            "the keys are divided into chunks; the queries should be, because "
            "the softmax needs all keys of its query",
            built(lambda T, S, D, r: (all_at_once(T, S, D), T * D + 2 * T * r)),
        ),
        Mistake(
            "all-strips",
            "all chunks counted",
            "all query chunks are counted together; each one is freed before "
            "the next is allocated",
            built(lambda T, S, D, r: (all_at_once(T, S, D), T * D + 2 * T * S)),
        ),
        Mistake(
            "inputs-too",
            "inputs counted",
            "the queries, keys and values are counted; only what the "
            "computation allocates is asked for",
            built(
                lambda T, S, D, r: [
                    n + T * D + 2 * S * D
                    for n in (all_at_once(T, S, D), T * D + 2 * r * S)
                ]
            ),
        ),
        Mistake(
            "higher-than-the-text",
            "chunk longer than the sequence",
            "a query chunk is assumed to have as many rows as requested, even "
            "where there are fewer queries",
            lambda B, H, T, S, D, n, rows: [
                peak(B, H, T, S, D, n, rows)[0],
                B * H * n * (T * D + 2 * rows * S),
            ],
        ),
    ),
)
