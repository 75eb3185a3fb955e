"""The decoder's first state, and one step of it over a bare cell.

Source: Bahdanau, Cho and Bengio (2015), section 3.1 and appendix A.2.2,
    https://arxiv.org/abs/1409.0473
Axes: B batch, S source symbols, M memory width (two directions side by side),
    N width of the decoder's state, A alignment width, I width of a symbol's
    vector
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.additive import additive_scores, context


def initial_state(
    states: Float[Tensor, "B S M"], W: Float[Tensor, "N half"]
) -> Float[Tensor, "B N"]:
    """Return tanh(W h), h the backward state at the first symbol."""
    backward = states[:, 0, states.shape[-1] // 2 :]
    return torch.tanh(backward @ W.T)


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
    looked, weights = context(scores, memory, lengths)
    inputs = torch.cat([word, looked[:, 0]], dim=-1)
    return cell(inputs, state), weights[:, 0]
