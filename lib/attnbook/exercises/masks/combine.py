"""Exercise: a causal and a padding mask in one.

Source: the shape is this book's convention
Axes: B batch, T queries and keys
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers
from attnbook.exercises.masks.causal import ALLOWED, causal
from attnbook.exercises.masks.padding import padding


def combine(lengths: Int[Tensor, " B"], T: int) -> Bool[Tensor, "B 1 T T"]:
    """Return True where a key is no padding and does not come later."""
    return causal(T, T) & padding(lengths, T)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; one sentence; several; then what hides a mistake."""

    def some(count, low, high):
        return draw_integers(rng, low, high, count)

    empty = some(3, 1, 6)
    empty[int(draw_integers(rng, 0, 2, 1))] = 0
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


def join_masks(join):
    """Return an answer from a causal (T, T) and a padding mask (B, 1, 1, T)."""
    return lambda lengths, T: join(causal(T, T), padding(lengths, T))


check_combine = Exercise(
    title="combined causal and padding mask",
    stars=2,
    minutes=5,
    section="Combining masks: and, or, not",
    solution=combine,
    returns=("mask",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "or",
            "`or` instead of `and`",
            "a key is allowed if either mask allows it; both masks must allow it",
            join_masks(lambda past, real: past | real),
        ),
        Mistake(
            "inverted",
            "inverted mask",
            "the mask is inverted: True should mean that a query can attend to a key",
            join_masks(lambda past, real: ~(past & real)),
        ),
        Mistake(
            "mixed-polarity",
            "padding mask inverted",
            "the two masks have opposite conventions: the padding mask is "
            "inverted, so real words are masked out and padding is not",
            join_masks(lambda past, real: past & ~real),
        ),
        Mistake(
            "mixed-polarity-future",
            "causal mask inverted",
            "the two masks have opposite conventions: the causal mask is "
            "inverted, so the past is masked out and the future is not",
            join_masks(lambda past, real: ~past & real),
        ),
        Mistake(
            "only-causal",
            "padding not masked",
            "padding is not masked out: only the causal mask is used",
            join_masks(lambda past, real: past.expand(len(real), 1, -1, -1)),
        ),
        Mistake(
            "only-padding",
            "future not masked",
            "the future is not masked out: only the padding mask is used",
            join_masks(lambda past, real: real.expand(-1, -1, len(past), -1)),
        ),
        Mistake(
            "wrong-axis",
            "padding mask along the queries",
            "the padding mask is applied along the queries, so the rows of "
            "padded queries are empty and padded keys are not masked out",
            join_masks(lambda past, real: past & real.mT),
        ),
        Mistake(
            "no-head-axis",
            "head axis missing",
            "the mask has the shape (B, T, T). With scores of shape (B, H, T, "
            "T), its batch axis would be used as the axis of heads",
            join_masks(lambda past, real: past & real[:, 0]),
        ),
        Mistake(
            "not-itself",
            "own position masked out",
            "a position cannot attend to itself, and the first one attends to nothing",
            join_masks(lambda past, real: past.tril(-1) & real),
        ),
        Mistake(
            "next-visible",
            "next position not masked out",
            "a position can attend to the next one, which it is supposed to predict",
            join_masks(lambda past, real: torch.ones_like(past).tril(1) & real),
        ),
        Mistake(
            "future",
            "future instead of past",
            "a position can attend to itself and to later positions; it "
            "should attend to itself and earlier ones",
            join_masks(lambda past, real: past.mT & real),
        ),
        Mistake(
            "multiplied",
            "numbers instead of booleans",
            "the mask contains the numbers 1 and 0, which other functions may "
            "add to the scores; it should be boolean",
            join_masks(lambda past, real: past.float() * real),
        ),
        Mistake(
            "added",
            "additive instead of boolean mask",
            "this is an additive mask of 0 and -inf; it should be boolean, "
            "with True where a position can attend",
            join_masks(lambda past, real: torch.where(past & real, 0.0, -torch.inf)),
        ),
    ),
)
