"""Exercise: the symbol error rate where several answers are accepted.

Source: edit distance of Wagner and Fischer (1974), over the nearest reference
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers
from attnbook.training import metrics


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


ADDED = "edits += min(distances)"
LENGTH = "max(len(r) for r, d in pairs if d == min(distances))"

check_error_rate = Exercise(
    title="symbol error rate with several references",
    stars=2,
    minutes=15,
    section="Word error rate and symbol error rate",
    solution=metrics.symbol_error_rate,
    returns=("rate",),
    draw=draw,
    key_line=f"symbols += {LENGTH}",
    allowed="Everything is allowed, `attnbook.training.metrics.edit_distance` "
    "too, but not the error rates beside it.",
    mistakes=(
        Mistake(
            "first-reference",
            "first reference only",
            "the output is compared with the first reference only",
            "distances = [ → accepted = accepted[:1]; distances = [",
        ),
        Mistake(
            "last-reference",
            "last reference only",
            "the output is compared with the last reference only",
            "distances = [ → accepted = accepted[-1:]; distances = [",
        ),
        Mistake(
            "shortest-reference",
            "shortest reference",
            "the output is compared with the shortest reference; it should be "
            "the nearest one",
            "distances = [ → accepted = [min(accepted, key=len)]; distances = [",
        ),
        Mistake(
            "mean-of-words",
            "mean of the words' rates",
            "it averages the rates of the words; edits and symbols should be "
            "summed first, so that a long word weighs more",
            (
                f"{ADDED} → ",
                f"symbols += {LENGTH} → {ADDED} / {LENGTH}",
                "edits / symbols → edits / len(outputs)",
            ),
        ),
        Mistake(
            "farthest",
            "farthest reference",
            "the output is compared with the reference that is farthest; it "
            "should be the nearest one",
            (
                f"{ADDED} → edits += max(distances)",
                "d == min(distances) → d == max(distances)",
            ),
        ),
        Mistake(
            "all-references",
            "all references summed",
            "the edits of all references are summed, so that a word with "
            "several references is always counted as wrong",
            (
                f"{ADDED} → edits += sum(distances)",
                f"{LENGTH} → sum(map(len, accepted))",
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
            (f"{LENGTH} → len(output)", "/ symbols → / max(symbols, 1)"),
        ),
        Mistake(
            "first-length",
            "divided by the first reference's length",
            "it divides by the length of the first reference; it should divide "
            "by the length of the nearest one",
            f"{LENGTH} → len(accepted[0])",
        ),
        Mistake(
            "per-word",
            "divided by the number of words",
            "it divides by the number of words; it should divide by the "
            "number of symbols",
            "edits / symbols → edits / len(outputs)",
        ),
        Mistake(
            "in-place",
            "compared position by position",
            "symbols are compared position by position, so one extra symbol "
            "makes all later ones wrong; use the edit distance",
            "edit_distance(output, r) → max(len(output), len(r)) "
            "- sum(a == b for a, b in zip(output, r))",
        ),
        Mistake(
            "capped",
            "rate capped at 1",
            "the rate is capped at 1; an output that is much too long can "
            "have a higher rate",
            "edits / symbols → min(1.0, edits / symbols)",
        ),
        Mistake(
            "accuracy",
            "accuracy instead of error",
            "it returns the share that is right; the error rate is the share "
            "that is wrong",
            "edits / symbols → 1 - edits / symbols",
        ),
        Mistake(
            "percent",
            "percentage instead of a fraction",
            "it returns a percentage; the rate should be a fraction",
            "edits / symbols → 100 * (edits / symbols)",
        ),
    ),
)
