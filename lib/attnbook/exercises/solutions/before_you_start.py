"""What a reader should be able to write before the first chapter.

Source: PyTorch's documentation of nn.Softmax, nn.GRU and nn.LSTM, whose order
    of gates and placement of biases is followed
Axes: B batch, T queries, S keys, D key width, A alignment width, I input
    width, N state width
"""

import torch
from jaxtyping import Float
from torch import Tensor


def softmax(x: Float[Tensor, "T S"]) -> Float[Tensor, "T S"]:
    """Return each row as positive numbers that sum to 1."""
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def batched_product(
    query: Float[Tensor, "B T D"], key: Float[Tensor, "B S D"]
) -> Float[Tensor, "B T S"]:
    """Return the product of every query with every key of its sequence."""
    return query @ key.mT


def broadcast_add(
    a: Float[Tensor, "B T A"], b: Float[Tensor, "B S A"]
) -> Float[Tensor, "B T S A"]:
    """Return the sum of every row of a with every row of b."""
    return a[:, :, None] + b[:, None]


def gradient(x: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Return the gradient of the sum of squares of softmax(x)."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad((x.softmax(-1) ** 2).sum(), x)[0]


def gru_step(
    x: Float[Tensor, "B I"],
    h: Float[Tensor, "B N"],
    W_ih: Float[Tensor, "N3 I"],
    W_hh: Float[Tensor, "N3 N"],
    b_ih: Float[Tensor, " N3"],
    b_hh: Float[Tensor, " N3"],
) -> Float[Tensor, "B N"]:
    """Return the next state; the gates are stacked as reset, update, new."""
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3, -1)
    r_h, z_h, n_h = (h @ W_hh.T + b_hh).chunk(3, -1)
    reset, update = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    new = (n_x + reset * n_h).tanh()
    return (1 - update) * new + update * h


def lstm_step(
    x: Float[Tensor, "B I"],
    h: Float[Tensor, "B N"],
    c: Float[Tensor, "B N"],
    W_ih: Float[Tensor, "N4 I"],
    W_hh: Float[Tensor, "N4 N"],
    b_ih: Float[Tensor, " N4"],
    b_hh: Float[Tensor, " N4"],
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """Return the next h and c; gates stacked as input, forget, new, output."""
    gates = x @ W_ih.T + b_ih + h @ W_hh.T + b_hh
    enter, keep, new, out = gates.chunk(4, -1)
    c = keep.sigmoid() * c + enter.sigmoid() * new.tanh()
    return out.sigmoid() * c.tanh(), c
