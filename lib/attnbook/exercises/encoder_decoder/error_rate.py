"""Exercise: the symbol error rate where several answers are accepted.

Source: edit distance of Wagner and Fischer (1974), over the nearest reference
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers
from attnbook.training import metrics

Sequences = list[tuple[str, ...]]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One word with one reference, up to a corpus with several each.

    No two references are equally near, so that no rule for ties is needed.
    """

    def word(length):
        return tuple(f"p{i}" for i in draw_integers(rng, 1, 9, length).tolist())

    def far(length):
        return tuple(f"q{i}" for i in range(length))

    one, two, three = word(4), word(7), word(int(draw_integers(rng, 9, 12)))
    shifted = (*two[1:], "r")  # 2 edits, though every place may differ
    corpus = (
        [one, shifted, (*three[:5], "r", *three[6:8]), word(3)],
        [[one], [far(9), two], [far(5), three, far(20)], [far(8), far(6)]],
    )
    return (
        Case("with one right word", ([one], [[one]])),
        Case("with one symbol too many", ([(*one, "r")], [[one]])),
        Case("with an empty output", ([()], [[two]])),
        Case(
            "with an output equal to the second reference",
            ([one], [[far(2), one]]),
        ),
        Case("with a shifted word", ([shifted], [[two]])),
        Case("with an output that is far too long", ([far(9)], [[one]])),
        Case("on four words", corpus),
    )


def find_nearest_distance(output, accepted):
    """Return the edit distance to the nearest reference, and its length."""
    return min((metrics.edit_distance(output, r), len(r)) for r in accepted)


def compute_rate(choose, rate):
    """Return a rate of the edits and lengths that `choose` finds a word."""

    def answer(outputs, references):
        pairs = [choose(o, r) for o, r in zip(outputs, references, strict=True)]
        edits, lengths = zip(*pairs, strict=True)
        return rate(edits, lengths)

    return answer


def divide_totals(edits, lengths):
    """Return all edits over all symbols."""
    return sum(edits) / sum(lengths)


def count_without_alignment(output, reference):
    """Count the positions that differ, without alignment."""
    same = sum(a == b for a, b in zip(output, reference, strict=False))
    return max(len(output), len(reference)) - same


check_error_rate = Exercise(
    title="symbol error rate with several references",
    stars=2,
    minutes=15,
    section="Word error rate and symbol error rate",
    solution=metrics.symbol_error_rate,
    returns=("rate",),
    draw=draw,
    allowed="Everything is allowed, `attnbook.training.metrics.edit_distance` "
    "too, but not the error rates beside it.",
    mistakes=(
        Mistake(
            "first-reference",
            "first reference only",
            "the output is compared with the first reference only",
            compute_rate(
                lambda o, r: find_nearest_distance(o, r[:1]), divide_totals
            ),
        ),
        Mistake(
            "last-reference",
            "last reference only",
            "the output is compared with the last reference only",
            compute_rate(
                lambda o, r: find_nearest_distance(o, r[-1:]), divide_totals
            ),
        ),
        Mistake(
            "shortest-reference",
            "shortest reference",
            "the output is compared with the shortest reference; it should be "
            "the nearest one",
            compute_rate(
                lambda o, r: find_nearest_distance(o, [min(r, key=len)]),
                divide_totals,
            ),
        ),
        Mistake(
            "mean-of-words",
            "mean of the words' rates",
            "it averages the rates of the words; edits and symbols should be "
            "summed first, so that a long word weighs more",
            compute_rate(
                find_nearest_distance,
                lambda e, n: (
                    sum(a / b for a, b in zip(e, n, strict=True)) / len(e)
                ),
            ),
        ),
        Mistake(
            "farthest",
            "farthest reference",
            "the output is compared with the reference that is farthest; it "
            "should be the nearest one",
            compute_rate(
                lambda o, r: max(
                    (metrics.edit_distance(o, x), len(x)) for x in r
                ),
                divide_totals,
            ),
        ),
        Mistake(
            "all-references",
            "all references summed",
            "the edits of all references are summed, so that a word with "
            "several references is always counted as wrong",
            compute_rate(
                lambda o, r: (
                    sum(metrics.edit_distance(o, x) for x in r),
                    sum(map(len, r)),
                ),
                divide_totals,
            ),
        ),
        Mistake(
            "whole-words",
            "word error rate",
            "it counts wrong words; it should count wrong symbols",
            metrics.sequence_error_rate,
        ),
        Mistake(
            "over-output",
            "divided by the output's length",
            "it divides by the length of the output; it should divide by the "
            "length of the reference",
            compute_rate(
                lambda o, r: (find_nearest_distance(o, r)[0], len(o)),
                lambda e, n: sum(e) / max(sum(n), 1),
            ),
        ),
        Mistake(
            "first-length",
            "divided by the first reference's length",
            "it divides by the length of the first reference; it should divide "
            "by the length of the nearest one",
            compute_rate(
                lambda o, r: (find_nearest_distance(o, r)[0], len(r[0])),
                divide_totals,
            ),
        ),
        Mistake(
            "per-word",
            "divided by the number of words",
            "it divides by the number of words; it should divide by the "
            "number of symbols",
            compute_rate(find_nearest_distance, lambda e, n: sum(e) / len(e)),
        ),
        Mistake(
            "in-place",
            "compared position by position",
            "symbols are compared position by position, so one extra symbol "
            "makes all later ones wrong; use the edit distance",
            compute_rate(
                lambda o, r: min(
                    (count_without_alignment(o, x), len(x)) for x in r
                ),
                divide_totals,
            ),
        ),
        Mistake(
            "capped",
            "rate capped at 1",
            "the rate is capped at 1; an output that is much too long can "
            "have a higher rate",
            compute_rate(
                find_nearest_distance,
                lambda e, n: min(1.0, divide_totals(e, n)),
            ),
        ),
        Mistake(
            "accuracy",
            "accuracy instead of error",
            "it returns the share that is right; the error rate is the share "
            "that is wrong",
            compute_rate(
                find_nearest_distance, lambda e, n: 1 - divide_totals(e, n)
            ),
        ),
        Mistake(
            "percent",
            "percentage instead of a fraction",
            "it returns a percentage; the rate should be a fraction",
            compute_rate(
                find_nearest_distance, lambda e, n: 100 * divide_totals(e, n)
            ),
        ),
    ),
)
