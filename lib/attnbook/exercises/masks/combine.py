"""Exercise: causal and padding, in one mask.

Chapter: chapters/07_masks
Source: none; the shape is this book's convention
Axes: B batch, T positions that ask and are asked
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole
from attnbook.solutions.masks import causal, combine, padding


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; one sentence; several; then what hides a mistake."""

    def some(count, low, high):
        return whole(rng, low, high, count)

    empty = some(3, 1, 6)
    empty[int(whole(rng, 0, 2, 1))] = 0
    return (
        Case("with one position", (torch.tensor([1]), 1)),
        Case("with one sentence without padding", (torch.tensor([5]), 5)),
        Case("with one sentence", (some(1, 1, 4), 5)),
        Case("with 3 sentences", (some(3, 1, 7), 7)),
        Case("with more padding than words", (some(2, 1, 4), 11)),
        Case("with an empty sentence", (empty, 7)),
        Case("with as many sentences as positions", (some(5, 1, 4), 5)),
        Case("with lengths of 32 bits", (some(2, 1, 5).int(), 5)),
    )


def of(join):
    """Return an answer from a causal (T, T) and a padding mask (B, 1, 1, T)."""
    return lambda lengths, T: join(causal(T, T), padding(lengths, T))


check_combine = Exercise(
    title="causal and padding together",
    stars=2,
    minutes=5,
    section="Masks combine",
    solution=combine,
    returns=("mask",),
    draw=draw,
    allowed="Everything in PyTorch is allowed; `attnbook.masks` has the answer "
    "in it.",
    mistakes=(
        Mistake(
            "or",
            "a key is seen if either mask allows it; both have to",
            of(lambda past, real: past | real),
        ),
        Mistake(
            "inverted",
            "the mask is upside down: here True means that a query may look",
            of(lambda past, real: ~(past & real)),
        ),
        Mistake(
            "mixed-polarity",
            "True means “may look” in one of the masks and “is padding” in the "
            "other: real words are hidden and padding is seen",
            of(lambda past, real: past & ~real),
        ),
        Mistake(
            "mixed-polarity-future",
            "True means “may look” in one of the masks and “is hidden” in the "
            "other: the future is seen and the past is hidden",
            of(lambda past, real: ~past & real),
        ),
        Mistake(
            "only-causal",
            "padding is not hidden",
            of(lambda past, real: past.expand(len(real), 1, -1, -1)),
        ),
        Mistake(
            "only-padding",
            "the future is not hidden",
            of(lambda past, real: real.expand(-1, -1, len(past), -1)),
        ),
        Mistake(
            "wrong-axis",
            "the padding mask lies along the queries: the rows of padded "
            "queries are emptied, and an empty row is where NaN comes from",
            of(lambda past, real: past & real.mT),
        ),
        Mistake(
            "no-head-axis",
            "the mask is (B, T, T); beside scores (B, H, T, T) its sentences "
            "would be taken for heads",
            of(lambda past, real: past & real[:, 0]),
        ),
        Mistake(
            "not-itself",
            "a position does not see itself, and the first sees nothing",
            of(lambda past, real: past.tril(-1) & real),
        ),
        Mistake(
            "sees-next",
            "a position sees the next one too: what it is to predict",
            of(lambda past, real: torch.ones_like(past).tril(1) & real),
        ),
        Mistake(
            "future",
            "a position sees itself and what comes after, not what came before",
            of(lambda past, real: past.mT & real),
        ),
        Mistake(
            "multiplied",
            "these are numbers, 1 and 0, which another function may well add "
            "to the scores; truth values are asked for",
            of(lambda past, real: past.float() * real),
        ),
        Mistake(
            "added",
            "these are numbers to be added to scores; a truth value is asked "
            "for, True where a position may look",
            of(lambda past, real: torch.where(past & real, 0.0, -torch.inf)),
        ),
    ),
)
