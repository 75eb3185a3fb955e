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


def make_lstm_with_forget_bias(width: int, bias: float) -> nn.LSTM:
    """Return an LSTM whose forget gate starts more open.

    Args:
        width: of input and state.
        bias: added to the bias of the forget gate. PyTorch stacks the gates as
            input, forget, cell and output gate.
    """
    network = nn.LSTM(width, width, batch_first=True)
    with torch.no_grad():
        network.get_parameter("bias_hh_l0")[width : 2 * width] += bias
    return network


SEQUENCE_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "rnn": lambda width: nn.RNN(width, width, batch_first=True),
    "gru": lambda width: nn.GRU(width, width, batch_first=True),
    "lstm": lambda width: nn.LSTM(width, width, batch_first=True),
    "attention": SelfAttentionLayer,
}


def compute_gradient_norms_at_ends(
    model: nn.Module, x: Float[Tensor, "B T C"], upstream: Float[Tensor, "B C"]
) -> tuple[float, float]:
    """Return the gradient norms of the last output at both ends of x.

    Returns:
        The mean norm on the first position, and on the last.
    """
    x = x.detach().requires_grad_()
    last = model(x)[0][:, -1]
    (gradient,) = torch.autograd.grad(last, x, upstream)
    return compute_mean_norm(gradient[:, 0]), compute_mean_norm(gradient[:, -1])


def compute_mean_norm(vectors: Float[Tensor, "B C"]) -> float:
    """Return the mean norm; numbers whose squares underflow are kept."""
    largest = vectors.abs().amax()
    if not largest > 0:
        return float(largest)
    return float(largest * (vectors / largest).norm(dim=-1).mean())
