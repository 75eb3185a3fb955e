"""Exercise: the state at each sequence's true end.

Chapter: chapters/01_bottleneck
Source: Cho et al. (2014), section 2.2, https://arxiv.org/abs/1406.1078
Axes: B batch, S source symbols, M memory width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal, whole
from attnbook.solutions.encoder_decoder import last_state


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Full sequences; then padding, whose states run on or are 0."""
    lengths = torch.tensor([int(whole(rng, 2, 4)), 5, 1])
    states = normal(rng, 3, 5, 7)
    padding = (torch.arange(5) >= lengths[:, None])[..., None]
    silent = states.masked_fill(padding, 0)
    zero = silent.clone()
    zero[1, 4] = 0  # a real state may be all zeros
    return (
        Case("with one symbol", (normal(rng, 1, 1, 3), torch.tensor([1]))),
        Case("without padding", (states, torch.tensor([5, 5, 5]))),
        Case("when the network ran on over padding", (states, lengths), True),
        Case("when padding has states of 0", (silent, lengths), True),
        Case("when a real state is 0", (zero, lengths)),
        Case("when all are shorter", (states, torch.tensor([3, 2, 2]))),
        Case("with B = S = M", (normal(rng, 3, 3, 3), torch.tensor([2, 1, 3]))),
        Case("in double precision", doubled((states, lengths))),
    )


def at(places):
    """Return an answer that takes other places than the right ones."""
    return lambda states, lengths: states[
        torch.arange(len(lengths)), places(states, lengths)
    ]


def real(states, lengths):
    """Return 1 where a symbol is real: (B, S, 1)."""
    here = torch.arange(states.shape[1]) < lengths[:, None]
    return here[..., None].to(states.dtype)


check_last_state = Exercise(
    title="the state at the true end",
    stars=2,
    minutes=10,
    section="Where a padded sequence ends",
    solution=last_state,
    returns=("last",),
    draw=draw,
    mistakes=(
        Mistake(
            "last-place",
            "it takes the last place of the batch, which may be padding",
            lambda states, lengths: states[:, -1],
        ),
        Mistake(
            "first-place",
            "it takes the first state, which has read one symbol",
            lambda states, lengths: states[:, 0],
        ),
        Mistake(
            "one-too-few",
            "it takes the state before the last: places count from 0",
            at(lambda states, lengths: lengths - 2),
        ),
        Mistake(
            "one-too-many",
            "it takes the place after the end: places count from 0",
            at(lambda states, n: n.clamp(max=states.shape[1] - 1)),
        ),
        Mistake(
            "one-too-many-wrapped",
            "it takes the place after the end: places count from 0",
            at(lambda states, n: n % states.shape[1]),
        ),
        Mistake(
            "past-the-end",
            "it takes the place after the end: places count from 0",
            at(lambda states, lengths: lengths),
        ),
        Mistake(
            "longest-only",
            "every sequence is taken at the end of the longest",
            lambda states, lengths: states[:, lengths.max() - 1],
        ),
        Mistake(
            "first-length-only",
            "every sequence is taken at the end of the first",
            lambda states, lengths: states[:, lengths[0] - 1],
        ),
        Mistake(
            "mean-state",
            "it averages the real states instead of taking the last",
            lambda states, n: (
                (states * real(states, n)).sum(1) / n[:, None].to(states.dtype)
            ),
        ),
        Mistake(
            "mean-of-all",
            "it averages the states, padding included",
            lambda states, lengths: states.mean(1),
        ),
        Mistake(
            "largest",
            "it takes the largest of the real states, number by number",
            lambda states, n: states.masked_fill(
                real(states, n) == 0, -torch.inf
            ).amax(1),
        ),
        Mistake(
            "reads-end-from-zeros",
            "the end is told by states of 0; it is told by the lengths",
            at(lambda states, n: states.any(-1).sum(1) - 1),
        ),
        Mistake(
            "sum-of-all",
            "it adds up the states instead of taking the last",
            lambda states, lengths: states.sum(1),
        ),
        Mistake(
            "flattened",
            "the places run through the whole batch, not through each sequence",
            lambda states, lengths: states.flatten(0, 1)[lengths - 1],
        ),
    ),
)
