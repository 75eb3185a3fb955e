"""Exercise: which symbols each state of a bidirectional encoder depends on.

Source: Schuster and Paliwal (1997), section II-B,
    https://doi.org/10.1109/78.650093
Axes: S source positions
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def state_dependencies(length: int, width: int, packed: bool) -> Bool[Tensor, "2 S S"]:
    """Return whether each state depends on each input, by direction.

    Args:
        length: how many symbols are real.
        width: positions S, padding included.
        packed: whether the batch is packed.
    """
    position = torch.arange(width)
    forward = position[:, None] >= position
    depends = torch.stack([forward, forward.mT])
    real = position < length
    return depends & real & real[:, None] if packed else depends


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Without padding; then with padding, packed or not."""
    short, long = int(draw_integers(rng, 2, 3)), int(draw_integers(rng, 4, 5))
    return (
        Case("with one symbol and no padding", (1, 1, False)),
        Case("with three symbols and no padding", (3, 3, False)),
        Case("with three symbols, packed, no padding", (3, 3, True)),
        Case("with padding and no packing", (short, 5, False)),
        Case("with padding and packing", (short, 5, True)),
        Case("with more padding and packing", (long, 11, True)),
        Case("with more padding and no packing", (long, 11, False)),
    )


def make_padding_mask(length: int, width: int) -> Bool[Tensor, " S"]:
    """Return True at the positions that are not padding."""
    return torch.arange(width) < length


def find_unpacked_dependencies(length: int, width: int) -> Bool[Tensor, "2 S S"]:
    """Return the dependencies of an encoder that runs over the padding."""
    return state_dependencies(length, width, False)


def change_if_packed(change):
    """Return an answer that is right without packing, and else changed."""
    return lambda length, width, packed: (
        change(
            find_unpacked_dependencies(length, width),
            make_padding_mask(length, width),
        )
        if packed
        else find_unpacked_dependencies(length, width)
    )


check_state_dependencies = Exercise(
    title="which symbols a state depends on",
    stars=2,
    minutes=15,
    section="Batches: padding and packing",
    solution=state_dependencies,
    returns=("depends",),
    draw=draw,
    without=frozenset({"long", "positions"}),
    mistakes=(
        Mistake(
            "directions-swapped",
            "directions swapped",
            "the two directions are swapped: the forward state at a position "
            "has read that symbol and all symbols before it",
            lambda *x: state_dependencies(*x).flip(0),
        ),
        Mistake(
            "packing-ignored",
            "packing ignored",
            "packing changes nothing in the answer; packed states do not "
            "depend on padding",
            lambda length, width, packed: find_unpacked_dependencies(length, width),
        ),
        Mistake(
            "always-packed",
            "padding always skipped",
            "padding is skipped although the batch is not packed",
            lambda length, width, packed: state_dependencies(length, width, True),
        ),
        Mistake(
            "zeros-neutral",
            "padding of zeros taken for neutral",
            "padding is treated as if it had no effect without packing; an "
            "input of zeros still changes the state",
            lambda length, width, packed: (
                state_dependencies(length, width, packed)
                & make_padding_mask(length, width)
            ),
        ),
        Mistake(
            "everything",
            "every state reads everything",
            "every state is marked as dependent on every symbol; each "
            "direction has read only one side of a position",
            lambda length, width, packed: torch.ones(2, width, width, dtype=torch.bool),
        ),
        Mistake(
            "own-symbol-missing",
            "own symbol left out",
            "the symbol at a state's own position is left out; the step that "
            "computes the state reads that symbol",
            lambda *x: state_dependencies(*x) & ~torch.eye(x[1], dtype=torch.bool),
        ),
        Mistake(
            "own-symbol-only",
            "only the own symbol",
            "only the symbol at a state's own position is marked; the state "
            "before it carries the earlier symbols",
            lambda *x: state_dependencies(*x) & torch.eye(x[1], dtype=torch.bool),
        ),
        Mistake(
            "padding-states-remain",
            "states at padding not empty",
            "with packing, states at padding positions are marked as "
            "dependent on real symbols; packed sequences have no states there",
            change_if_packed(lambda depends, real: depends & real),
        ),
        Mistake(
            "padding-symbols-remain",
            "padding read by real states",
            "with packing, real states are marked as dependent on padding; a "
            "packed sequence contains no padding",
            change_if_packed(lambda depends, real: depends & real[:, None]),
        ),
        Mistake(
            "backward-mirrored",
            "backward states listed in reading order",
            "the backward states are listed in the order in which they are "
            "computed; PyTorch lists them by position",
            lambda *x: torch.stack(
                [state_dependencies(*x)[0], state_dependencies(*x)[1].flip(0)]
            ),
        ),
        Mistake(
            "one-direction",
            "one direction only",
            "there is only one direction in the answer; a bidirectional "
            "encoder has two",
            lambda *x: state_dependencies(*x)[0],
        ),
    ),
)
