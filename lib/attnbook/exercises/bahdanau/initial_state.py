"""Exercise: the decoder's first state.

Source: Bahdanau, Cho and Bengio (2015), appendix A.2.2,
    https://arxiv.org/abs/1409.0473
Axes: B batch, S source symbols, M memory width, N state width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def initial_state(
    states: Float[Tensor, "B S M"], W: Float[Tensor, "N half"]
) -> Float[Tensor, "B N"]:
    """Return tanh(W h), h the backward state at the first symbol."""
    backward = states[:, 0, states.shape[-1] // 2 :]
    return torch.tanh(backward @ W.T)


def draw_first_state(rng: torch.Generator) -> tuple[Case, ...]:
    """One symbol; then a sentence, where first and last position differ."""

    def inputs(b, s, half, n):
        return draw_normal(rng, b, s, 2 * half), draw_normal(rng, n, half)

    return (
        Case("with one symbol", inputs(1, 1, 3, 2)),
        Case("with 5 symbols", inputs(3, 5, 7, 4), gradient=True),
        Case("with equal widths", inputs(2, 4, 3, 3)),
        Case("in double precision", to_double(inputs(2, 4, 3, 5)), asked=False),
    )


check_initial_state = Exercise(
    title="the decoder's initial state",
    stars=1,
    minutes=5,
    section="A bidirectional encoder",
    solution=initial_state,
    returns=("state",),
    draw=draw_first_state,
    mistakes=(
        Mistake(
            "forward-state",
            "forward state of the first symbol",
            "it uses the forward state at the first symbol, which has read "
            "only one symbol; the backward state there has read the whole "
            "sentence",
            lambda states, W: (states[:, 0, : W.shape[1]] @ W.T).tanh(),
        ),
        Mistake(
            "last-position",
            "backward state of the last symbol",
            "it uses the backward state at the last position, which has read "
            "only one symbol; the one at the first position has read them all",
            lambda states, W: (states[:, -1, W.shape[1] :] @ W.T).tanh(),
        ),
        Mistake(
            "forward-end",
            "forward state of the last symbol",
            "it uses the forward state at the last position; the paper uses "
            "the backward state at the first position",
            lambda states, W: (states[:, -1, : W.shape[1]] @ W.T).tanh(),
        ),
        Mistake(
            "no-tanh",
            "no tanh",
            "tanh is not applied",
            lambda states, W: states[:, 0, W.shape[1] :] @ W.T,
        ),
        Mistake(
            "relu-for-tanh",
            "ReLU instead of tanh",
            "the activation is ReLU; it should be tanh",
            lambda states, W: (states[:, 0, W.shape[1] :] @ W.T).relu(),
        ),
        Mistake(
            "zeros",
            "zero initial state",
            "the initial state is zero, so the decoder starts without "
            "information about the sentence",
            lambda states, W: states.new_zeros(len(states), len(W)),
        ),
        Mistake(
            "mean-state",
            "mean of the backward states",
            "it averages the backward states; it should use the one at the "
            "first symbol, which has read the whole sentence",
            lambda states, W: (states[..., W.shape[1] :].mean(1) @ W.T).tanh(),
        ),
        Mistake(
            "interleaved",
            "every second feature",
            "it uses every second feature; the forward and backward states "
            "are concatenated, and the backward one is the second half",
            lambda states, W: (states[:, 0, 1::2] @ W.T).tanh(),
        ),
    ),
)
