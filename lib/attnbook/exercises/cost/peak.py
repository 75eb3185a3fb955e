"""Exercise: peak memory, with and without query chunks.

Axes: B batch, H heads, T queries, S keys, D width of query, key and value
"""

import torch

from attnbook.exercises.cost.flops import ALLOWED, draw_sizes
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def peak(B: int, H: int, T: int, S: int, D: int, itemsize: int, rows: int) -> list[int]:
    """Return the peak memory, whole and in query chunks of some rows."""
    chunk = min(rows, T)
    whole = T * S + max(T * S, T * D)
    cut = T * D + 2 * chunk * S
    return [B * H * itemsize * n for n in (whole, cut)]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One query; chunks that divide T or not; wide heads, few keys."""

    def given(rows, itemsize=4, **some):
        s = draw_sizes(rng, **some)
        return (*(s[x] for x in "BHTSD"), itemsize, rows)

    few = int(draw_integers(rng, 3, 20, 1))
    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 4, 1)),
        Case("with one head", given(few, B=1, H=1, G=1, T=128)),
        Case("in half precision", given(few, itemsize=2)),
        Case("with chunks of one query", given(1)),
        Case("with chunks longer than the sequence", given(512)),
        Case("with heads wider than there are keys", (2, 3, 50, 7, 64, 4, few)),
    )


check_peak = Exercise(
    title="peak memory, with and without query chunks",
    stars=2,
    minutes=15,
    section="Query chunks: less memory with plain code",
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
            ("T * S + max(T * S, T * D) → T * S", "2 * chunk → chunk"),
        ),
        Mistake(
            "elements",
            "elements instead of bytes",
            "it returns the number of elements in memory, not the number of bytes",
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
            "max(T * S, T * D) → T * S + T * D",
        ),
        Mistake(
            "no-wide-heads",
            "wide heads not considered",
            "it is assumed that scores and weights always need the most; "
            "where heads are wide and keys are few, weights and output need "
            "more",
            "max(T * S, T * D) → T * S",
        ),
        Mistake(
            "no-output",
            "output missing",
            "for query chunks, the output is missing; all of it is in memory",
            "T * D + 2 → 2",
        ),
        Mistake(
            "output-of-one-chunk",
            "output of one chunk only",
            "for query chunks, only the output of one chunk is counted; the "
            "outputs of all chunks stay in memory",
            "T * D + 2 → chunk * D + 2",
        ),
        Mistake(
            "square-tiles",
            "square chunk of scores",
            "a chunk's scores are counted as rows · rows; they have one "
            "column for each key",
            "chunk * S → chunk * chunk",
        ),
        Mistake(
            "cuts-keys",
            "keys divided into chunks",
            "the keys are divided into chunks; the queries should be, because "
            "the softmax of a query needs all keys",
            "2 * chunk * S → 2 * T * chunk",
        ),
        Mistake(
            "all-chunks",
            "all chunks counted",
            "all query chunks are counted together; each one is freed before "
            "the next is allocated",
            "2 * chunk * S → 2 * T * S",
        ),
        Mistake(
            "inputs-too",
            "inputs counted",
            "the queries, keys and values are counted; count only "
            "what the computation allocates",
            "n for n in → (n + T * D + 2 * S * D) for n in",
        ),
        Mistake(
            "higher-than-the-text",
            "chunk longer than the sequence",
            "a query chunk is assumed to have as many rows as requested, even "
            "where there are fewer queries",
            "min(rows, T) → rows",
        ),
    ),
)
