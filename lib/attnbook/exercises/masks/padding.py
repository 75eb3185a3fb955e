"""Exercise: hide the keys that only fill up a batch.

Chapter: chapters/07_masks
Source: none; the shape is this book's convention
Axes: B batch, S keys
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole
from attnbook.solutions.masks import padding


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One sentence; several; then what hides a mistake."""

    def some(count, low, high):
        return whole(rng, low, high, count)

    empty = some(4, 1, 6)
    empty[int(whole(rng, 0, 3, 1))] = 0
    return (
        Case("with one sentence that fills its row", (torch.tensor([3]), 3)),
        Case("with one sentence", (some(1, 1, 4), 5)),
        Case("with 5 sentences", (some(5, 1, 7), 7)),
        Case("with columns that no sentence fills", (some(2, 1, 5), 11)),
        Case("with an empty sentence", (empty, 7)),
        Case("with as many sentences as keys", (some(5, 1, 4), 5)),
        Case("with lengths of 32 bits", (some(3, 1, 5).int(), 5)),
    )


def made(compare):
    """Return an answer from a comparison of places and lengths (B, 1)."""

    def answer(lengths, S):
        found = compare(torch.arange(S), lengths[:, None], S)
        return found[:, None, None, :]

    return answer


check_padding = Exercise(
    title="a padding mask from lengths",
    stars=1,
    minutes=5,
    section="Padding: only the keys",
    solution=padding,
    returns=("mask",),
    draw=draw,
    allowed="Everything in PyTorch is allowed; `attnbook.masks` has the answer "
    "in it.",
    mistakes=(
        Mistake(
            "inverted",
            "the mask is upside down: it is True for padding, as "
            "`key_padding_mask` wants it, and here True means that a query "
            "may look",
            made(lambda s, n, S: s >= n),
        ),
        Mistake(
            "one-too-many",
            "the first key of the padding is seen: keys are counted from 0",
            made(lambda s, n, S: s <= n),
        ),
        Mistake(
            "one-too-few",
            "the last word of a sentence is hidden",
            made(lambda s, n, S: s < n - 1),
        ),
        Mistake(
            "wrong-axis",
            "the mask lies along the queries: the padding is hidden from no "
            "one, and padded queries see nothing",
            lambda lengths, S: padding(lengths, S).mT,
        ),
        Mistake(
            "queries-too",
            "the rows of padded queries are emptied as well; only keys are to "
            "be hidden, and the mask is (B, 1, 1, S)",
            lambda lengths, S: padding(lengths, S) & padding(lengths, S).mT,
        ),
        Mistake(
            "no-axes",
            "the mask is (B, S); beside scores (B, H, T, S) its sentences "
            "would be taken for queries, silently where B = T",
            lambda lengths, S: padding(lengths, S)[:, 0, 0],
        ),
        Mistake(
            "no-head-axis",
            "the mask is (B, 1, S); beside scores (B, H, T, S) its sentences "
            "would be taken for heads",
            lambda lengths, S: padding(lengths, S)[:, 0],
        ),
        Mistake(
            "longest",
            "the mask ends with the longest sentence; there are S keys, and a "
            "batch may be padded further",
            lambda lengths, S: padding(lengths, int(lengths.max())),
        ),
        Mistake(
            "left",
            "the padding is taken to come first; here it comes last",
            made(lambda s, n, S: s >= S - n),
        ),
        Mistake(
            "empty-sees-first",
            "an empty sentence gets a key all the same; its row has to stay "
            "empty",
            made(lambda s, n, S: s < n.clamp(min=1)),
        ),
        Mistake(
            "empty-sees-all",
            "an empty sentence sees everything, and what it sees is padding",
            made(lambda s, n, S: (s < n) | (n == 0)),
        ),
        Mistake(
            "everything",
            "every key is seen: the lengths are not used",
            made(lambda s, n, S: (s >= 0) | (n < 0)),
        ),
        Mistake(
            "first-length",
            "all sentences get the length of the first",
            made(lambda s, n, S: (s < n[:1]).expand(len(n), -1)),
        ),
        Mistake(
            "additive",
            "these are numbers to be added to scores; a truth value is asked "
            "for, True where a query may look",
            lambda lengths, S: torch.zeros(len(lengths), 1, 1, S).masked_fill(
                ~padding(lengths, S), -torch.inf
            ),
        ),
    ),
)
