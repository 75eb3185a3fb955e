"""Exercise: the causal mask, with more keys than queries or fewer.

Source: bottom right is this book's convention
Axes: T queries, S keys
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers

ALLOWED = "Everything in PyTorch is allowed; `attnbook.masks` has the answer in it."


def causal(T: int, S: int) -> Bool[Tensor, "T S"]:
    """Return True where key s does not come after query t.

    The last query is aligned with the last key, so query t has the position
    t + S - T.
    """
    return torch.arange(S) <= torch.arange(T)[:, None] + S - T


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Square, then a cache, then more queries than keys; random sizes."""

    def size(low, high):
        return int(draw_integers(rng, low, high, 1))

    # Two of each, so that two draws are hardly ever the same.
    few, less = size(2, 6), size(2, 6)
    many, more = size(8, 23), size(8, 23)
    return (
        Case("with one query and one key", (1, 1)),
        Case("with 3 queries and 3 keys", (3, 3)),
        Case("with as many queries as keys", (many, many)),
        Case("with one query and a cache of keys", (1, more)),
        Case("with more keys than queries", (few, many)),
        Case("with more queries than keys", (more, less)),
        Case("with many queries and one key", (many, 1)),
    )


def allow_all(T, S):
    """Return True for all."""
    return torch.ones(T, S, dtype=torch.bool)


check_causal = Exercise(
    title="causal mask, square or not",
    stars=1,
    minutes=5,
    section="Causal masks with a KV cache",
    solution=causal,
    returns=("mask",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "inverted",
            "inverted mask",
            "the mask is inverted: True should mean that a query can attend to a key",
            lambda T, S: ~causal(T, S),
        ),
        Mistake(
            "top-left",
            "aligned at the top left",
            "the mask is aligned at the top left; it should be aligned at the "
            "bottom right, so that the last query can attend to all keys",
            lambda T, S: allow_all(T, S).tril(),
        ),
        Mistake(
            "clamped",
            "top left when queries outnumber keys",
            "with more queries than keys, the mask is aligned at the top "
            "left; it should still be aligned at the bottom right, so that "
            "the first queries attend to nothing",
            lambda T, S: allow_all(T, S).tril(max(S - T, 0)),
        ),
        Mistake(
            "wrong-sign",
            "offset with the wrong sign",
            "the diagonal is shifted by T - S; it should be shifted by S - T",
            lambda T, S: allow_all(T, S).tril(T - S),
        ),
        Mistake(
            "not-itself",
            "own position masked out",
            "a query cannot attend to its own position; it should",
            lambda T, S: allow_all(T, S).tril(S - T - 1),
        ),
        Mistake(
            "next-visible",
            "next position not masked out",
            "a query can attend to the next position, which it is supposed to predict",
            lambda T, S: allow_all(T, S).tril(S - T + 1),
        ),
        Mistake(
            "future",
            "future instead of past",
            "a query can attend to itself and to later positions; it should "
            "attend to itself and earlier ones",
            lambda T, S: allow_all(T, S).triu(S - T),
        ),
        Mistake(
            "everything",
            "nothing masked out",
            "every query can attend to every key: nothing is masked out",
            allow_all,
        ),
        Mistake(
            "square",
            "square mask",
            "the mask has the shape (S, S); it should have one row for each query",
            lambda T, S: causal(S, S),
        ),
        Mistake(
            "transposed",
            "transposed",
            "the mask is transposed; its shape should be (T, S)",
            lambda T, S: causal(T, S).mT,
        ),
        Mistake(
            "additive",
            "additive instead of boolean mask",
            "this is an additive mask of 0 and -inf; it should be boolean, "
            "with True where a query can attend",
            lambda T, S: torch.zeros(T, S).masked_fill(~causal(T, S), -torch.inf),
        ),
        Mistake(
            "zeros-and-ones",
            "numbers instead of booleans",
            "the mask contains the numbers 1 and 0, which other functions may "
            "add to the scores; it should be boolean",
            lambda T, S: causal(T, S).float(),
        ),
    ),
)
