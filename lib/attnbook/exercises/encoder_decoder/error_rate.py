"""Exercise: the symbol error rate where several answers are accepted.

Chapter: chapters/01_bottleneck
Source: edit distance of Wagner and Fischer (1974), over the nearest reference
Axes: none
"""

import torch

from attnbook import metrics
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole

Sequences = list[tuple[str, ...]]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One word with one reference, up to a corpus with several each.

    No two references are equally near, so that no rule for ties is needed.
    """

    def word(length):
        return tuple(f"p{i}" for i in whole(rng, 1, 9, length).tolist())

    def far(length):
        return tuple(f"q{i}" for i in range(length))

    one, two, three = word(4), word(7), word(int(whole(rng, 9, 12)))
    shifted = (*two[1:], "r")  # 2 edits, though every place may differ
    corpus = (
        [one, shifted, (*three[:5], "r", *three[6:8]), word(3)],
        [[one], [far(9), two], [far(5), three, far(20)], [far(8), far(6)]],
    )
    return (
        Case("with one right word", ([one], [[one]])),
        Case("with one symbol too many", ([(*one, "r")], [[one]])),
        Case("with nothing said", ([()], [[two]])),
        Case("with the second reference", ([one], [[far(2), one]])),
        Case("with a word shifted by one", ([shifted], [[two]])),
        Case("with far more said than asked", ([far(9)], [[one]])),
        Case("on four words", corpus),
    )


def nearest(output, accepted):
    """Return the edit distance to the nearest reference, and its length."""
    return min((metrics.edit_distance(output, r), len(r)) for r in accepted)


def over(choose, rate):
    """Return a rate of the edits and lengths that `choose` finds a word."""

    def answer(outputs, references):
        pairs = [choose(o, r) for o, r in zip(outputs, references, strict=True)]
        edits, lengths = zip(*pairs, strict=True)
        return rate(edits, lengths)

    return answer


def ratio(edits, lengths):
    """Return all edits over all symbols."""
    return sum(edits) / sum(lengths)


def in_place(output, reference):
    """Count the places that differ, without aligning first."""
    same = sum(a == b for a, b in zip(output, reference, strict=False))
    return max(len(output), len(reference)) - same


check_error_rate = Exercise(
    title="symbol error rate with several references",
    stars=2,
    minutes=15,
    section="How wrong is a pronunciation?",
    solution=metrics.symbol_error_rate,
    returns=("rate",),
    draw=draw,
    allowed="Everything is allowed, `attnbook.metrics.edit_distance` too, "
    "but not the error rates beside it.",
    mistakes=(
        Mistake(
            "first-reference",
            "the output is compared with the first reference only",
            over(lambda o, r: nearest(o, r[:1]), ratio),
        ),
        Mistake(
            "last-reference",
            "the output is compared with the last reference only",
            over(lambda o, r: nearest(o, r[-1:]), ratio),
        ),
        Mistake(
            "shortest-reference",
            "it takes the shortest reference, not the nearest",
            over(lambda o, r: nearest(o, [min(r, key=len)]), ratio),
        ),
        Mistake(
            "mean-of-words",
            "it averages the words' rates; edits and symbols are summed "
            "first, so that a long word weighs more",
            over(
                nearest,
                lambda e, n: (
                    sum(a / b for a, b in zip(e, n, strict=True)) / len(e)
                ),
            ),
        ),
        Mistake(
            "farthest",
            "it takes the reference that is farthest, not the nearest",
            over(
                lambda o, r: max(
                    (metrics.edit_distance(o, x), len(x)) for x in r
                ),
                ratio,
            ),
        ),
        Mistake(
            "all-references",
            "every reference is counted, so that a word with several is "
            "wrong whatever is said",
            over(
                lambda o, r: (
                    sum(metrics.edit_distance(o, x) for x in r),
                    sum(map(len, r)),
                ),
                ratio,
            ),
        ),
        Mistake(
            "whole-words",
            "it counts words that are wrong, not symbols",
            metrics.sequence_error_rate,
        ),
        Mistake(
            "over-output",
            "it divides by the symbols said, not by those of the reference",
            over(
                lambda o, r: (nearest(o, r)[0], len(o)),
                lambda e, n: sum(e) / max(sum(n), 1),
            ),
        ),
        Mistake(
            "per-word",
            "it divides by the number of words, not of symbols",
            over(nearest, lambda e, n: sum(e) / len(e)),
        ),
        Mistake(
            "in-place",
            "symbols are compared place by place; one symbol too many makes "
            "all that follow wrong",
            over(lambda o, r: min((in_place(o, x), len(x)) for x in r), ratio),
        ),
        Mistake(
            "capped",
            "it stops at 1; whoever says too much can be more wrong than that",
            over(nearest, lambda e, n: min(1.0, ratio(e, n))),
        ),
        Mistake(
            "accuracy",
            "it returns how much is right, not how much is wrong",
            over(nearest, lambda e, n: 1 - ratio(e, n)),
        ),
        Mistake(
            "percent",
            "it returns percent; a rate is a share",
            over(nearest, lambda e, n: 100 * ratio(e, n)),
        ),
    ),
)
