"""Exercise: Sutskever's reversal trick on a padded batch.

Source: Sutskever, Vinyals and Le (2014), section 3.3,
    https://arxiv.org/abs/1409.3215
Axes: B batch, S source symbols
"""

import torch
from jaxtyping import Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def reverse_source(
    tokens: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> Int[Tensor, "B S"]:
    """Return each sequence in reverse order, with its padding at the end."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    reversed_positions = lengths[:, None] - 1 - positions
    real = reversed_positions >= 0
    return tokens.gather(1, torch.where(real, reversed_positions, positions))


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Full sequences; then padding, with ids that may repeat."""

    def inputs(lengths, width, pad=0):
        lengths = torch.tensor(lengths)
        tokens = draw_integers(rng, 4, 99, len(lengths), width)
        padding = torch.arange(width) >= lengths[:, None]
        return tokens.masked_fill(padding, pad), lengths

    some = int(draw_integers(rng, 2, 6))
    zeros, lengths = inputs([7, 3, 5], 7)
    zeros[:, 1] = 0  # a real symbol may have the number of padding
    return (
        Case("with one symbol", inputs([1], 1)),
        Case("without padding", inputs([5, 5], 5)),
        Case("with padding", inputs([some, 7, 1], 7)),
        Case("with sequences all shorter than the batch", inputs([4, 2], 7)),
        Case("with padding that is not 0", inputs([3, 5], 5, pad=1)),
        Case("with a real symbol 0", (zeros, lengths)),
    )


def reverse_one_by_one(turn):
    """Return an answer that reverses each sequence separately."""
    return lambda tokens, lengths: torch.stack(
        [turn(x, n) for x, n in zip(tokens, lengths.tolist(), strict=True)]
    )


check_reverse_source = Exercise(
    title="reverse the source without its padding",
    stars=1,
    minutes=10,
    section="Reversing the source",
    solution=reverse_source,
    returns=("reversed",),
    draw=draw,
    without=frozenset({"long", "positions"}),
    mistakes=(
        Mistake(
            "padding-first",
            "padding moved to the front",
            "the padding is reversed as well and moves to the front",
            lambda tokens, lengths: tokens.flip(1),
        ),
        Mistake(
            "not-reversed",
            "not reversed",
            "the sequences are not reversed",
            lambda tokens, lengths: tokens.clone(),
        ),
        Mistake(
            "batch-reversed",
            "batch axis reversed",
            "the order of the sequences in the batch is reversed; the symbols "
            "within each sequence should be",
            lambda tokens, lengths: tokens.flip(0),
        ),
        Mistake(
            "one-too-few",
            "last symbol not reversed",
            "the last real symbol is not moved",
            reverse_one_by_one(
                lambda x, n: torch.cat([x[: n - 1].flip(0), x[n - 1 :]])
            ),
        ),
        Mistake(
            "one-too-many",
            "one padding symbol reversed",
            "one padding position is reversed with the sequence",
            reverse_one_by_one(
                lambda x, n: torch.cat([x[: n + 1].flip(0), x[n + 1 :]])
            ),
        ),
        Mistake(
            "first-length-only",
            "first length for all sequences",
            "every sequence is reversed with the length of the first one",
            lambda tokens, lengths: torch.cat(
                [tokens[:, : lengths[0]].flip(1), tokens[:, lengths[0] :]], 1
            ),
        ),
        Mistake(
            "padding-zero",
            "padding overwritten with 0",
            "the padding is replaced by 0; it should stay as it was",
            reverse_one_by_one(
                lambda x, n: torch.cat([x[:n].flip(0), x.new_zeros(len(x) - n)])
            ),
        ),
        Mistake(
            "reads-padding-from-ids",
            "padding found by symbol",
            "the symbol 0 is taken for padding; the lengths tell what is padding",
            reverse_one_by_one(lambda x, n: torch.cat([x[x != 0].flip(0), x[x == 0]])),
        ),
        Mistake(
            "cut",
            "batch truncated",
            "the batch is truncated to its longest sequence",
            lambda tokens, lengths: reverse_source(tokens[:, : lengths.max()], lengths),
        ),
    ),
)
