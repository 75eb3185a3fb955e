"""The pieces of a Transformer that go wrong most, in a few lines each.

Source: Vaswani et al. (2017), sections 3.1, 3.2.3 and 3.4,
    https://arxiv.org/abs/1706.03762; Xiong et al. (2020), section 3,
    https://arxiv.org/abs/2002.04745
Axes: B batch, T target places, S source places, C model width, V symbols
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.self_attention import causal_mask


def next_symbol_loss(
    logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"], pad: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of each symbol, given those before it."""
    guesses, wanted = logits[:, :-1], ids[:, 1:]
    return F.cross_entropy(
        guesses.flatten(0, 1), wanted.flatten(), ignore_index=pad
    )


def block(
    x: Float[Tensor, "B T C"],
    attention: Callable,
    network: Callable,
    first: Callable,
    second: Callable,
) -> Float[Tensor, "B T C"]:
    """Return x with what each sublayer makes of its normalised form."""
    x = x + attention(first(x))
    return x + network(second(x))


def decoder_step(
    x: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S C"],
    lengths: Int[Tensor, " B"],
    attend: Callable,
) -> Float[Tensor, "B T C"]:
    """Return x with what it takes from its past, then from the memory."""
    past = causal_mask(x.shape[1], x.shape[1])
    x = x + attend(x, x, x, past)
    real = torch.arange(memory.shape[1]) < lengths[:, None, None]
    return x + attend(x, memory, memory, real)


def tied(
    table: Float[Tensor, "V C"],
    ids: Int[Tensor, "B T"],
    states: Float[Tensor, "B T C"],
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T V"]]:
    """Return the vectors of symbols, and the logits of states: one table."""
    return table[ids] * table.shape[1] ** 0.5, states @ table.T
