"""Wrong answers to the exercises of chapters/00_before_you_start."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import before_you_start as checks
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers


def gru_parts(x, h, W_ih, W_hh, b_ih, b_hh):
    of_x = F.linear(x, W_ih, b_ih).chunk(3, dim=-1)
    return of_x, F.linear(h, W_hh, b_hh).chunk(3, dim=-1)


def cell_of_torch(kind):
    def answer(x, *rest):
        *states, W_ih, W_hh, b_ih, b_hh = rest
        cell = kind(x.shape[1], states[0].shape[1], dtype=x.dtype)
        with torch.no_grad():
            for p, w in zip(cell.parameters(), (W_ih, W_hh, b_ih, b_hh), strict=True):
                p.copy_(w)
        return cell(x, states[0] if len(states) == 1 else tuple(states))

    return answer


def lstm_gates(x, h, c, W_ih, W_hh, b_ih, b_hh):
    return (F.linear(x, W_ih, b_ih) + F.linear(h, W_hh, b_hh)).chunk(4, -1)


SOFTMAX = Answers(checks.check_softmax, make.detached, make.in_double)
SOFTMAX += (
    Wrong(
        "ready-made",
        "F.softmax",
        "everything",
        lambda x: F.softmax(x, dim=-1),
    ),
    Wrong(
        "ready-made",
        "nn.Softmax",
        "everything",
        lambda x: nn.Softmax(dim=-1)(x),
    ),
    Wrong(
        "ready-made",
        "log_softmax, then exp",
        "everything",
        lambda x: x.log_softmax(-1).exp(),
    ),
)


@SOFTMAX.wrong("numbers", "numbers below 80")
def clamped(x):
    """clamp against the overflow."""
    powers = torch.exp(x.clamp(max=80))
    return powers / powers.sum(-1, keepdim=True)


@SOFTMAX.wrong("numbers", "two digits")
def with_slack(x):
    """A constant against division by 0, too large."""
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / (powers.sum(-1, keepdim=True) + 0.01)


@SOFTMAX.wrong("numbers", "the order of the numbers")
def unnamed_axis(x):
    """F.normalize divides by the root of the sum of squares."""
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return F.normalize(powers, dim=-1)


BATCHED_PRODUCT = Answers(checks.check_batched_product, make.detached, make.in_double)
BATCHED_PRODUCT += (
    Wrong(
        "ready-made",
        "attention gives such a table too",
        "nothing",
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
    ),
)


@BATCHED_PRODUCT.wrong("numbers", "a batch of one")
def all_pairs_of_batches(query, key):
    """Two names for the batch in einsum."""
    return torch.einsum("btd,csd->bts", query, key)


@BATCHED_PRODUCT.wrong("shape", "one query and one key")
def rows_only(query, key):
    """Row by row, as two vectors would be."""
    return (query * key[:, : query.shape[1]]).sum(-1, keepdim=True)


BROADCAST_ADD = Answers(checks.check_broadcast_add, make.detached, make.in_double)


@BROADCAST_ADD.wrong("shape", "every number")
def flattened(a, b):
    """The pairs in one axis."""
    return (a[:, :, None] + b[:, None]).flatten(1, 2)


@BROADCAST_ADD.wrong("numbers", "a batch of one")
def batch_added(a, b):
    """The batch of b is summed away."""
    return a[:, :, None] + b.sum(0)


@BROADCAST_ADD.wrong("numbers", "S = 1")
def plus_first_row(a, b):
    """A slice that keeps one row."""
    return (a[:, :, None] + b[:, None, :1]).expand(-1, -1, b.shape[1], -1)


GRADIENT = Answers(checks.check_gradient, make.in_double)


@GRADIENT.wrong("numbers", "the direction")
def cut(x):
    """One factor is detached: half the gradient."""
    x = x.clone().requires_grad_()
    (x.softmax(0).detach() * x.softmax(0)).sum().backward()
    return x.grad


@GRADIENT.wrong("none", "nothing")
def never_called(x):
    """Backward is never called."""
    x = x.clone().requires_grad_()
    (x.softmax(0) ** 2).sum()
    return x.grad


@GRADIENT.wrong("shape", "a step on the way")
def jacobian(x):
    """The Jacobian of the softmax."""
    return torch.autograd.functional.jacobian(lambda y: y.softmax(0), x)


@GRADIENT.wrong("numbers", "two digits")
def rough(x):
    """A difference quotient."""

    def value(y):
        return (y.softmax(0) ** 2).sum()

    steps = torch.eye(len(x), dtype=x.dtype) * 1e-3
    return torch.stack([(value(x + s) - value(x)) / 1e-3 for s in steps])


GRU_STEP = Answers(checks.check_gru_step, make.detached, make.in_double)
GRU_STEP += (
    Wrong(
        "ready-made",
        "nn.GRUCell with the weights copied in",
        "every number forwards",
        cell_of_torch(nn.GRUCell),
    ),
)


@GRU_STEP.wrong("numbers", "the shape")
def plain_rnn(x, h, W_ih, W_hh, b_ih, b_hh):
    """A plain RNN."""
    n = h.shape[1]
    return torch.tanh(F.linear(x, W_ih[:n], b_ih[:n]) + F.linear(h, W_hh[:n], b_hh[:n]))


@GRU_STEP.wrong("numbers", "small positive candidates, nearly")
def relu_candidate(x, h, *weights):
    """Relu for tanh."""
    (r, z, n), (r_h, z_h, n_h) = gru_parts(x, h, *weights)
    reset, update = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    return (1 - update) * F.relu(n + reset * n_h) + update * h


@GRU_STEP.wrong("numbers", "states of width 1")
def interleaved_gates(x, h, W_ih, W_hh, b_ih, b_hh):
    """Gates are interleaved, as in some weight files."""

    def turned(w):
        return w.unflatten(0, (-1, 3)).transpose(0, 1).flatten(0, 1)

    return checks.check_gru_step.solution(
        x, h, *(turned(w) for w in (W_ih, W_hh, b_ih, b_hh))
    )


LSTM_STEP = Answers(checks.check_lstm_step, make.detached, make.in_double)
LSTM_STEP += (
    Wrong(
        "ready-made",
        "nn.LSTMCell with the weights copied in",
        "every number forwards",
        cell_of_torch(nn.LSTMCell),
    ),
)


@LSTM_STEP.wrong("numbers", "the shape")
def tensorflow_order(x, h, c, *weights):
    """TensorFlow's BasicLSTMCell stacks input, new, forget, output."""
    i, new, f, o = lstm_gates(x, h, c, *weights)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * torch.tanh(c), c


@LSTM_STEP.wrong("numbers", "a cell that starts at 0")
def forget_biased(x, h, c, *weights):
    """1 added to the forget gate, as initialisation advises."""
    i, f, new, o = lstm_gates(x, h, c, *weights)
    c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * torch.tanh(c), c


@LSTM_STEP.wrong("type", "h")
def hidden_only(*x):
    """Only h is returned."""
    return checks.check_lstm_step.solution(*x)[0]


ANSWERS = collect_answers(checks, vars())
