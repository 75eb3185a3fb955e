"""Exercise: the state at each sequence's true end.

Source: Cho et al. (2014), section 2.2, https://arxiv.org/abs/1406.1078
Axes: B batch, S source symbols, M memory width
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, to_double


def last_state(
    states: Float[Tensor, "B S M"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B M"]:
    """Return the state after each sequence's last real symbol."""
    return states[torch.arange(len(lengths)), lengths - 1]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Full sequences; then padding, whose states run on or are 0."""
    lengths = torch.tensor([int(draw_integers(rng, 2, 4)), 5, 1])
    states = draw_normal(rng, 3, 5, 7)
    padding = (torch.arange(5) >= lengths[:, None])[..., None]
    silent = states.masked_fill(padding, 0)
    zero = silent.clone()
    zero[1, 4] = 0  # a real state may be all zeros
    return (
        Case("with one symbol", (draw_normal(rng, 1, 1, 3), torch.tensor([1]))),
        Case("without padding", (states, torch.tensor([5, 5, 5]))),
        Case("with states computed on padding", (states, lengths), True),
        Case("when padding has states of 0", (silent, lengths), True),
        Case("when a real state is 0", (zero, lengths)),
        Case("when all are shorter", (states, torch.tensor([3, 2, 2]))),
        Case(
            "with B = S = M",
            (draw_normal(rng, 3, 3, 3), torch.tensor([2, 1, 3])),
        ),
        Case("in double precision", to_double((states, lengths)), asked=False),
    )


def take_states_at(places):
    """Return an answer that reads the states at other positions."""
    return lambda states, lengths: states[
        torch.arange(len(lengths)), places(states, lengths)
    ]


def make_padding_mask(states, lengths):
    """Return 1 where a symbol is real: (B, S, 1)."""
    here = torch.arange(states.shape[1]) < lengths[:, None]
    return here[..., None].to(states.dtype)


check_last_state = Exercise(
    title="the last state before the padding",
    stars=2,
    minutes=10,
    section="Batches: padding and packing",
    solution=last_state,
    returns=("last",),
    draw=draw,
    mistakes=(
        Mistake(
            "last-position",
            "last position, even if padding",
            "it uses the last position of the batch, which may be padding",
            lambda states, lengths: states[:, -1],
        ),
        Mistake(
            "first-position",
            "first position",
            "it uses the first state, which has read only one symbol",
            lambda states, lengths: states[:, 0],
        ),
        Mistake(
            "one-too-few",
            "one position too early",
            "it uses the state before the last one: the last real position is "
            "length - 1",
            take_states_at(lambda states, lengths: lengths - 2),
        ),
        Mistake(
            "one-too-many",
            "one position too late",
            "it uses the position after the last one: the last real position "
            "is length - 1",
            take_states_at(lambda states, n: n.clamp(max=states.shape[1] - 1)),
        ),
        Mistake(
            "one-too-many-wrapped",
            "one too late, wrapping around",
            "it uses the position after the last one, and wraps around at the "
            "end: the last real position is length - 1",
            take_states_at(lambda states, n: n % states.shape[1]),
        ),
        Mistake(
            "past-the-end",
            "index past the end",
            "it uses the position after the last one, which may not exist: "
            "the last real position is length - 1",
            take_states_at(lambda states, lengths: lengths),
        ),
        Mistake(
            "longest-only",
            "longest length for all",
            "every sequence is read at the length of the longest one",
            lambda states, lengths: states[:, lengths.max() - 1],
        ),
        Mistake(
            "first-length-only",
            "first length for all",
            "every sequence is read at the length of the first one",
            lambda states, lengths: states[:, lengths[0] - 1],
        ),
        Mistake(
            "mean-state",
            "mean of the states",
            "it averages the real states; it should use the last one",
            lambda states, n: (
                (states * make_padding_mask(states, n)).sum(1)
                / n[:, None].to(states.dtype)
            ),
        ),
        Mistake(
            "mean-of-all",
            "mean with padding",
            "it averages all states, padding included; it should use the last real one",
            lambda states, lengths: states.mean(1),
        ),
        Mistake(
            "largest",
            "maximum of the states",
            "it takes the maximum of the real states in each feature; it "
            "should use the last state",
            lambda states, n: states.masked_fill(
                make_padding_mask(states, n) == 0, -torch.inf
            ).amax(1),
        ),
        Mistake(
            "reads-end-from-zeros",
            "end found by zero states",
            "it takes a state of zeros for the end of the sequence; the "
            "lengths give the end",
            take_states_at(lambda states, n: states.any(-1).sum(1) - 1),
        ),
        Mistake(
            "sum-of-all",
            "sum of the states",
            "it sums the states; it should use the last one",
            lambda states, lengths: states.sum(1),
        ),
        Mistake(
            "flattened",
            "index into the flattened batch",
            "the batch is flattened before it is indexed; every sequence "
            "should be indexed at its own position",
            lambda states, lengths: states.flatten(0, 1)[lengths - 1],
        ),
    ),
)
