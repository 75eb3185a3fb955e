"""Sequence layers with one interface: recurrent layers and self-attention.

Axes: B batch, T positions, C width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.self_attention import self_attention


class SelfAttentionLayer(nn.Module):
    """One layer of self-attention with the interface of `nn.GRU`."""

    def __init__(self, width: int):
        super().__init__()
        projections = torch.randn(3, width, width) / width**0.5
        self.projections = nn.Parameter(projections)

    def forward(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, None]:
        """Return self-attention over all positions."""
        return self_attention(x, *self.projections), None


def make_orthogonal_rnn(width: int) -> nn.RNN:
    """Return a tanh RNN with an orthogonal recurrent matrix."""
    network = nn.RNN(width, width, batch_first=True)
    nn.init.orthogonal_(network.get_parameter("weight_hh_l0"))
    return network


SEQUENCE_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "rnn": lambda width: nn.RNN(width, width, batch_first=True),
    "rnn, orthogonal": make_orthogonal_rnn,
    "gru": lambda width: nn.GRU(width, width, batch_first=True),
    "lstm": lambda width: nn.LSTM(width, width, batch_first=True),
    "attention": SelfAttentionLayer,
}


def gradient_reach(
    model: nn.Module, x: Float[Tensor, "B T C"], upstream: Float[Tensor, "B C"]
) -> tuple[float, float]:
    """Return the gradient norms of the last output at both ends of x.

    Returns:
        The mean norm on the first position, and on the last.
    """
    x = x.detach().requires_grad_()
    last = model(x)[0][:, -1]
    (gradient,) = torch.autograd.grad(last, x, upstream)
    norms = gradient.norm(dim=-1).mean(0)
    return float(norms[0]), float(norms[-1])
