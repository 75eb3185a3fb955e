"""Exercise: one step of the decoder, in the paper's order.

Source: Bahdanau, Cho and Bengio (2015), section 3.1 and appendix A.2.2,
    https://arxiv.org/abs/1409.0473
Axes: B batch, S source symbols, M memory width, N state width, A alignment
    width, I width of a symbol's vector
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.additive import additive_scores, context
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, to_double


def decoder_step(
    state: Float[Tensor, "B N"],
    word: Float[Tensor, "B I"],
    memory: Float[Tensor, "B S M"],
    lengths: Int[Tensor, " B"],
    W_query: Float[Tensor, "A N"],
    W_key: Float[Tensor, "A M"],
    v: Float[Tensor, " A"],
    cell: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B S"]]:
    """Return the next state and the weights: attend first, then step."""
    scores = additive_scores(state[:, None], memory, W_query, W_key, v)
    contexts, weights = context(scores, memory, lengths)
    inputs = torch.cat([word, contexts[:, 0]], dim=-1)
    return cell(inputs, state), weights[:, 0]


@dataclass(eq=False)
class Cell:
    """A tiny recurrent step: the next state from an input and a state."""

    enter: Tensor
    turn: Tensor

    def __call__(self, inputs: Tensor, state: Tensor) -> Tensor:
        """Return the next state (B, N) from inputs (B, I + M)."""
        enter, turn = self.enter.to(state.dtype), self.turn.to(state.dtype)
        return torch.tanh(inputs @ enter.T + state @ turn.T)

    def __eq__(self, other) -> bool:
        """Two cells are equal if their numbers are: it was not changed."""
        pairs = (self.enter, other.enter), (self.turn, other.turn)
        return all(torch.equal(a, b) for a, b in pairs)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One source symbol; then several; then padding; then equal widths."""

    def inputs(b, s, i, m, n, a, lengths):
        return (
            draw_normal(rng, b, n),
            draw_normal(rng, b, i),
            draw_normal(rng, b, s, m),
            torch.tensor(lengths),
            draw_normal(rng, a, n),
            draw_normal(rng, a, m),
            draw_normal(rng, a),
            Cell(0.3 * draw_normal(rng, n, i + m), 0.3 * draw_normal(rng, n, n)),
        )

    padded = inputs(3, 5, 2, 6, 3, 7, [int(draw_integers(rng, 2, 4)), 5, 1])
    return (
        Case("with one source symbol", inputs(1, 1, 2, 4, 3, 5, [1])),
        Case("with 5 source symbols", inputs(2, 5, 3, 4, 7, 11, [5, 5]), True),
        Case("with padding", padded, True),
        Case("with equal widths", inputs(3, 3, 3, 3, 3, 3, [3, 2, 3])),
        Case("in double precision", to_double(padded), asked=False),
    )


def average_memory(memory, lengths):
    """Return the mean of the real positions of the memory: (B, M)."""
    real = torch.arange(memory.shape[1]) < lengths[:, None]
    return (memory * real[..., None]).sum(1) / lengths[:, None].to(memory)


def attend_after_step(state, *inputs):
    """Step first, then return the weights of the new state."""
    following, _ = decoder_step(state, *inputs)
    return following, decoder_step(following, *inputs)[1]


def attend_between_two_steps(state, word, memory, lengths, W_query, W_key, v, cell):
    """Step without a context, attend with the new state, and step again."""
    nothing = torch.zeros_like(memory[:, 0])
    first = cell(torch.cat([word, nothing], -1), state)
    scores = additive_scores(first[:, None], memory, W_query, W_key, v)
    contexts, weights = context(scores, memory, lengths)
    return cell(torch.cat([word, contexts[:, 0]], -1), state), weights[:, 0]


check_decoder_step = Exercise(
    title="one decoder step",
    stars=2,
    minutes=20,
    section="One decoder step",
    solution=decoder_step,
    returns=("next_state", "weights"),
    draw=draw,
    allowed="Everything is allowed except a ready-made attention. You may use "
    "`additive_scores` and `context`.",
    mistakes=(
        Mistake(
            "state-lost",
            "state not used",
            "the recurrent step starts from zeros; it should start from the "
            "previous state",
            "cell(inputs, state) → cell(inputs, 0 * state)",
        ),
        Mistake(
            "context-unused",
            "context not used",
            "the recurrent step does not receive the context vector",
            "contexts[:, 0]] → 0 * contexts[:, 0]]",
        ),
        Mistake(
            "word-unused",
            "previous symbol not used",
            "the recurrent step does not receive the previous symbol",
            "[word, → [0 * word,",
        ),
        Mistake(
            "context-first",
            "inputs concatenated in wrong order",
            "the context is concatenated before the word; the word should come first",
            "[word, contexts[:, 0]] → [contexts[:, 0], word]",
        ),
        Mistake(
            "padding-unmasked",
            "padding not masked",
            "the padding positions of the memory get weight: they are not masked out",
            "memory, lengths) → memory, torch.full_like(lengths, memory.shape[1]))",
        ),
        Mistake(
            "attends-after-step",
            "weights of the new state",
            "the returned weights are computed from the state after the step; "
            "the paper's decoder computes them from the state before it",
            attend_after_step,
        ),
        Mistake(
            "attends-too-late",
            "attention after the step",
            "the attention comes after the recurrent step and uses the new "
            "state, as in Luong's decoder; the paper's decoder uses the state "
            "before the step",
            attend_between_two_steps,
        ),
        Mistake(
            "state-unchanged",
            "old state returned",
            "the returned state is the old one, unchanged",
            lambda state, *x: (state.clone(), decoder_step(state, *x)[1]),
        ),
        Mistake(
            "mean-for-context",
            "mean instead of weighted average",
            "the context is the plain mean of the memory; it should be the "
            "average weighted by the attention weights",
            lambda state, word, memory, n, W, U, v, cell: (
                cell(torch.cat([word, average_memory(memory, n)], -1), state),
                decoder_step(state, word, memory, n, W, U, v, cell)[1],
            ),
        ),
    ),
)
