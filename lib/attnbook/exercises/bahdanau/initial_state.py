"""Exercise: the decoder's first state.

Chapter: chapters/02_bahdanau
Source: Bahdanau, Cho and Bengio (2015), appendix A.2.2,
    https://arxiv.org/abs/1409.0473
Axes: B batch, S source symbols, M memory width, N state width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.solutions.bahdanau import initial_state


def draw_first_state(rng: torch.Generator) -> tuple[Case, ...]:
    """One symbol; then a sentence, where first and last place differ."""

    def inputs(b, s, half, n):
        return normal(rng, b, s, 2 * half), normal(rng, n, half)

    return (
        Case("with one symbol", inputs(1, 1, 3, 2)),
        Case("with 5 symbols", inputs(3, 5, 7, 4), gradient=True),
        Case("with equal widths", inputs(2, 4, 3, 3)),
        Case("in double precision", doubled(inputs(2, 4, 3, 5))),
    )


check_initial_state = Exercise(
    title="the decoder's first state",
    stars=1,
    minutes=5,
    section="The decoder's first state",
    solution=initial_state,
    returns=("state",),
    draw=draw_first_state,
    mistakes=(
        Mistake(
            "forward-state",
            "it takes the forward half, which at the first symbol has read "
            "one symbol only; the backward half has read the sentence",
            lambda states, W: (states[:, 0, : W.shape[1]] @ W.T).tanh(),
        ),
        Mistake(
            "last-place",
            "it takes the backward state at the last place, where that "
            "direction has only begun",
            lambda states, W: (states[:, -1, W.shape[1] :] @ W.T).tanh(),
        ),
        Mistake(
            "forward-end",
            "it takes the forward state at the last place, and the backward "
            "direction is dropped",
            lambda states, W: (states[:, -1, : W.shape[1]] @ W.T).tanh(),
        ),
        Mistake(
            "no-tanh",
            "there is no tanh",
            lambda states, W: states[:, 0, W.shape[1] :] @ W.T,
        ),
        Mistake(
            "relu-for-tanh",
            "tanh became relu",
            lambda states, W: (states[:, 0, W.shape[1] :] @ W.T).relu(),
        ),
        Mistake(
            "zeros",
            "it starts from zeros, and the decoder begins without having "
            "heard of the sentence",
            lambda states, W: states.new_zeros(len(states), len(W)),
        ),
        Mistake(
            "mean-state",
            "it averages the backward states; the one at the first symbol "
            "has read them all",
            lambda states, W: (states[..., W.shape[1] :].mean(1) @ W.T).tanh(),
        ),
        Mistake(
            "interleaved",
            "it takes every second number; the directions lie side by side, "
            "the backward one in the second half",
            lambda states, W: (states[:, 0, 1::2] @ W.T).tanh(),
        ),
    ),
)
