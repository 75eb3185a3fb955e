"""Exercise: a mask that leaves out padding.

Source: the shape is this book's convention
Axes: B batch, S keys
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers
from attnbook.exercises.masks.causal import ALLOWED


def padding(lengths: Int[Tensor, " B"], S: int) -> Bool[Tensor, "B 1 1 S"]:
    """Return True for keys that are no padding; for all heads and queries."""
    return (torch.arange(S) < lengths[:, None])[:, None, None, :]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One sentence; several; then what hides a mistake."""

    def some(count, low, high):
        return draw_integers(rng, low, high, count)

    empty = some(4, 1, 6)
    empty[int(draw_integers(rng, 0, 3, 1))] = 0
    return (
        Case("with one sentence that fills its row", (torch.tensor([3]), 3)),
        Case("with one sentence", (some(1, 1, 4), 5)),
        Case("with 5 sentences", (some(5, 1, 7), 7)),
        Case("with columns that no sentence fills", (some(2, 1, 5), 11)),
        Case("with an empty sentence", (empty, 7)),
        Case("with as many sentences as keys", (some(5, 1, 4), 5)),
        Case("with lengths of 32 bits", (some(3, 1, 5).int(), 5)),
    )


def compare_positions(compare):
    """Return an answer from a comparison of positions and lengths (B, 1)."""

    def answer(lengths, S):
        found = compare(torch.arange(S), lengths[:, None], S)
        return found[:, None, None, :]

    return answer


check_padding = Exercise(
    title="padding mask from lengths",
    stars=1,
    minutes=5,
    section="A mask is a table of queries and keys",
    solution=padding,
    returns=("mask",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "inverted",
            "inverted mask",
            "the mask is inverted: it is True for padding, as in PyTorch's "
            "`key_padding_mask`; True should mean that a query can attend to "
            "a key",
            compare_positions(lambda s, n, S: s >= n),
        ),
        Mistake(
            "one-too-many",
            "one key too many",
            "the first padding key is not masked out: the real keys are 0 to "
            "length - 1",
            compare_positions(lambda s, n, S: s <= n),
        ),
        Mistake(
            "one-too-few",
            "one key too few",
            "the last real key of each sentence is masked out: the real keys "
            "are 0 to length - 1",
            compare_positions(lambda s, n, S: s < n - 1),
        ),
        Mistake(
            "wrong-axis",
            "mask along the queries",
            "the mask lies along the queries, so padded keys are not masked "
            "out and padded queries attend to nothing",
            lambda lengths, S: padding(lengths, S).mT,
        ),
        Mistake(
            "queries-too",
            "queries masked as well",
            "the rows of padded queries are masked out as well; only keys "
            "should be, with the shape (B, 1, 1, S)",
            lambda lengths, S: padding(lengths, S) & padding(lengths, S).mT,
        ),
        Mistake(
            "no-axes",
            "head and query axes missing",
            "the mask has the shape (B, S). With scores of shape (B, H, T, "
            "S), its batch axis would be used as the axis of queries, without "
            "an error where B = T",
            lambda lengths, S: padding(lengths, S)[:, 0, 0],
        ),
        Mistake(
            "no-head-axis",
            "one axis missing",
            "the mask has the shape (B, 1, S). With scores of shape (B, H, T, "
            "S), its batch axis would be used as the axis of heads",
            lambda lengths, S: padding(lengths, S)[:, 0],
        ),
        Mistake(
            "longest",
            "cut at the longest sentence",
            "the mask ends at the longest sentence; it should have S keys, "
            "because a batch may be padded further",
            lambda lengths, S: padding(lengths, int(lengths.max())),
        ),
        Mistake(
            "left",
            "left padding",
            "the padding is assumed to be on the left; here it is on the right",
            compare_positions(lambda s, n, S: s >= S - n),
        ),
        Mistake(
            "empty-attends-first",
            "empty sentence attends to one key",
            "an empty sentence can attend to its first key; its mask should "
            "be False everywhere",
            compare_positions(lambda s, n, S: s < n.clamp(min=1)),
        ),
        Mistake(
            "empty-attends-all",
            "empty sentence attends to everything",
            "an empty sentence can attend to everything, which is only "
            "padding; its mask should be False everywhere",
            compare_positions(lambda s, n, S: (s < n) | (n == 0)),
        ),
        Mistake(
            "everything",
            "lengths not used",
            "no key is masked out: the lengths are not used",
            compare_positions(lambda s, n, S: (s >= 0) | (n < 0)),
        ),
        Mistake(
            "first-length",
            "first length for all",
            "every sentence is masked with the length of the first one",
            compare_positions(lambda s, n, S: (s < n[:1]).expand(len(n), -1)),
        ),
        Mistake(
            "additive",
            "additive instead of boolean mask",
            "this is an additive mask of 0 and -inf; it should be boolean, "
            "with True where a query can attend",
            lambda lengths, S: torch.zeros(len(lengths), 1, 1, S).masked_fill(
                ~padding(lengths, S), -torch.inf
            ),
        ),
    ),
)
