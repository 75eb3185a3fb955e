"""The decoder's first state, from the encoder's backward direction.

Chapter: chapters/02_bahdanau
Source: Bahdanau, Cho and Bengio (2015), appendix A.2.2,
    https://arxiv.org/abs/1409.0473
Axes: B batch, S source symbols, M memory width (two directions side by side),
    N width of the decoder's state
"""

import torch
from jaxtyping import Float
from torch import Tensor


def initial_state(
    states: Float[Tensor, "B S M"], W: Float[Tensor, "N half"]
) -> Float[Tensor, "B N"]:
    """Return tanh(W h), h the backward state at the first symbol."""
    backward = states[:, 0, states.shape[-1] // 2 :]
    return torch.tanh(backward @ W.T)
