"""Wrong answers to the exercises of chapters/00_before_you_start."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import before_you_start as checks
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual


def naive(x):
    powers = torch.exp(x)
    return powers / powers.sum(dim=-1, keepdim=True)


def along_columns(x):
    powers = torch.exp(x - x.max(dim=0, keepdim=True).values)
    return powers / powers.sum(dim=0, keepdim=True)


def of_everything(x):
    powers = torch.exp(x - x.max())
    return powers / powers.sum()


def one_peak(x):
    powers = torch.exp(x - x.max())
    return powers / powers.sum(-1, keepdim=True)


def flat_sums(x):
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1)


def clamped(x):
    powers = torch.exp(x.clamp(max=80))
    return powers / powers.sum(-1, keepdim=True)


def with_slack(x):
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / (powers.sum(-1, keepdim=True) + 0.01)


def unnamed_axis(x):
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return F.normalize(powers, dim=-1)


def peaked(x):
    return F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype)


def viewed(query, key):
    b, s, d = key.shape
    return torch.bmm(query, key.contiguous().view(b, d, s))


def all_pairs_of_batches(query, key):
    return torch.einsum("btd,csd->bts", query, key)


def rows_only(query, key):
    return (query * key[:, : query.shape[1]]).sum(-1, keepdim=True)


def batch_of_first(query, key):
    return torch.einsum("btd,sd->bts", query, key[0])


def keys_first(query, key):
    return torch.einsum("bsd,btd->bst", key, query)


def of_length_one(query, key):
    query = query / query.norm(dim=-1, keepdim=True)
    key = key / key.norm(dim=-1, keepdim=True)
    return query @ key.mT


def repeated(a, b):
    t, s = a.shape[1], b.shape[1]
    wide = a.repeat(1, s, 1).reshape(len(a), t, s, -1)
    return wide + b.unsqueeze(1).expand(-1, t, -1, -1)


def both_at_two(a, b):
    return a.unsqueeze(2) + b.unsqueeze(2)


def axes_swapped(a, b):
    return a.unsqueeze(1) + b.unsqueeze(2)


def flattened(a, b):
    return (a[:, :, None] + b[:, None]).flatten(1, 2)


def batch_added(a, b):
    return a[:, :, None] + b.sum(0)


def plus_first_row(a, b):
    return (a[:, :, None] + b[:, None, :1]).expand(-1, -1, b.shape[1], -1)


def accumulated(x):
    x = x.clone().requires_grad_()
    for _ in range(2):
        (x.softmax(0) ** 2).sum().backward()
    return x.grad


def of_the_weights(x):
    weights = x.softmax(0).detach().requires_grad_()
    (weights**2).sum().backward()
    return weights.grad


def elementwise(x):
    p = x.softmax(0)
    return 2 * p * p * (1 - p)


def summed_first(x):
    x = x.clone().requires_grad_()
    x.softmax(0).sum().square().backward()
    return x.grad


def cut(x):
    x = x.clone().requires_grad_()
    (x.softmax(0).detach() * x.softmax(0)).sum().backward()
    return x.grad


def never_called(x):
    x = x.clone().requires_grad_()
    (x.softmax(0) ** 2).sum()
    return x.grad


def jacobian(x):
    return torch.autograd.functional.jacobian(lambda y: y.softmax(0), x)


def rough(x):
    def value(y):
        return (y.softmax(0) ** 2).sum()

    steps = torch.eye(len(x), dtype=x.dtype) * 1e-3
    return torch.stack([(value(x + s) - value(x)) / 1e-3 for s in steps])


def gru_parts(x, h, W_ih, W_hh, b_ih, b_hh):
    of_x = F.linear(x, W_ih, b_ih).chunk(3, dim=-1)
    return of_x, F.linear(h, W_hh, b_hh).chunk(3, dim=-1)


def paper_gru(x, h, *weights):
    (r, z, n), (r_h, z_h, n_h) = gru_parts(x, h, *weights)
    reset, update = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    new = torch.tanh(n + reset * n_h)
    return update * new + (1 - update) * h


def update_first(x, h, *weights):
    (z, r, n), (z_h, r_h, n_h) = gru_parts(x, h, *weights)
    reset, update = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    new = torch.tanh(n + reset * n_h)
    return new + update * (h - new)


def reset_before(x, h, W_ih, W_hh, b_ih, b_hh):
    n = h.shape[1]
    gates = (x @ W_ih.T + b_ih)[:, : 2 * n] + (h @ W_hh.T + b_hh)[:, : 2 * n]
    reset, update = gates.sigmoid().split(n, dim=1)
    new = torch.tanh(
        F.linear(x, W_ih[2 * n :], b_ih[2 * n :])
        + F.linear(reset * h, W_hh[2 * n :], b_hh[2 * n :])
    )
    return (1 - update) * new + update * h


def plain_rnn(x, h, W_ih, W_hh, b_ih, b_hh):
    n = h.shape[1]
    return torch.tanh(
        F.linear(x, W_ih[:n], b_ih[:n]) + F.linear(h, W_hh[:n], b_hh[:n])
    )


def unreset(x, h, *weights):
    (_, z, n), (_, z_h, n_h) = gru_parts(x, h, *weights)
    update = torch.sigmoid(z + z_h)
    return (1 - update) * torch.tanh(n + n_h) + update * h


def relu_candidate(x, h, *weights):
    (r, z, n), (r_h, z_h, n_h) = gru_parts(x, h, *weights)
    reset, update = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    return (1 - update) * F.relu(n + reset * n_h) + update * h


def interleaved_gates(x, h, W_ih, W_hh, b_ih, b_hh):
    def turned(w):
        return w.unflatten(0, (-1, 3)).transpose(0, 1).flatten(0, 1)

    return checks.check_gru_step.solution(
        x, h, *(turned(w) for w in (W_ih, W_hh, b_ih, b_hh))
    )


def cell_of_torch(kind):
    def answer(x, *rest):
        *states, W_ih, W_hh, b_ih, b_hh = rest
        cell = kind(x.shape[1], states[0].shape[1], dtype=x.dtype)
        with torch.no_grad():
            for p, w in zip(
                cell.parameters(), (W_ih, W_hh, b_ih, b_hh), strict=True
            ):
                p.copy_(w)
        return cell(x, states[0] if len(states) == 1 else tuple(states))

    return answer


def lstm_gates(x, h, c, W_ih, W_hh, b_ih, b_hh):
    return (F.linear(x, W_ih, b_ih) + F.linear(h, W_hh, b_hh)).chunk(4, -1)


def tensorflow_order(x, h, c, *weights):
    i, new, f, o = lstm_gates(x, h, c, *weights)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * torch.tanh(c), c


def paper_order(x, h, c, *weights):
    i, f, o, new = lstm_gates(x, h, c, *weights)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * torch.tanh(c), c


def cell_first(x, h, c, *weights):
    i, f, new, o = lstm_gates(x, h, c, *weights)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
    return c, torch.sigmoid(o) * torch.tanh(c)


def never_forgets(x, h, c, *weights):
    i, _, new, o = lstm_gates(x, h, c, *weights)
    c = c + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * torch.tanh(c), c


def shows_the_cell(x, h, c, *weights):
    i, f, new, o = lstm_gates(x, h, c, *weights)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * c, c


def stale(x, h, c, *weights):
    i, f, new, o = lstm_gates(x, h, c, *weights)
    shown = torch.sigmoid(o) * torch.tanh(c)
    return shown, torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)


def forget_biased(x, h, c, *weights):
    i, f, new, o = lstm_gates(x, h, c, *weights)
    c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * torch.tanh(c), c


def hidden_only(*x):
    return checks.check_lstm_step.solution(*x)[0]


def hidden_detached(*x):
    h, c = checks.check_lstm_step.solution(*x)
    return h.detach(), c.detach()


ANSWERS = {
    "check_softmax": (
        *usual(checks.check_softmax),
        detached(checks.check_softmax.solution),
        single(checks.check_softmax.solution),
        Wrong(
            "unstable",
            "the formula as it stands (TorchLeet's grader accepts it)",
            "small numbers",
            naive,
        ),
        Wrong("wrong-axis", "dim=0", "the shape", along_columns),
        Wrong(
            "whole-table",
            "no axis at all, and a peak for all",
            "a table of one row",
            of_everything,
        ),
        Wrong(
            "global-max",
            "x.max() without an axis",
            "rows of like size",
            one_peak,
        ),
        Wrong(
            "no-keepdim",
            "keepdim forgotten; where T = S nothing complains",
            "the shape, where T = S",
            flat_sums,
        ),
        Wrong(
            "numbers",
            "clamp against the overflow",
            "numbers below 80",
            clamped,
        ),
        Wrong(
            "numbers",
            "a constant against division by 0, too large",
            "two digits",
            with_slack,
        ),
        Wrong(
            "numbers",
            "F.normalize divides by the root of the sum of squares",
            "the order of the numbers",
            unnamed_axis,
        ),
        Wrong(
            "hard-choice",
            "argmax is the hard softmax",
            "which number is the largest",
            peaked,
        ),
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
    ),
    "check_batched_product": (
        *usual(checks.check_batched_product),
        detached(checks.check_batched_product.solution),
        single(checks.check_batched_product.solution),
        Wrong("reshaped", "view for transpose", "the shape", viewed),
        Wrong(
            "numbers",
            "two names for the batch in einsum",
            "a batch of one",
            all_pairs_of_batches,
        ),
        Wrong(
            "shape",
            "row by row, as two vectors would be",
            "one query and one key",
            rows_only,
        ),
        Wrong(
            "first-sequence",
            "tried on a batch of one",
            "a batch of one",
            batch_of_first,
        ),
        Wrong(
            "swapped-axes",
            "key @ query.mT",
            "every number, turned",
            keys_first,
        ),
        Wrong(
            "cosine",
            "similarity is taken to be the cosine",
            "the sign",
            of_length_one,
        ),
        Wrong(
            "scaled",
            "scaled dot-product attention, from memory",
            "the order of the scores",
            lambda q, k: q @ k.mT / k.shape[-1] ** 0.5,
        ),
        Wrong(
            "ready-made",
            "attention gives such a table too",
            "nothing",
            lambda q, k: F.scaled_dot_product_attention(q, k, k),
        ),
    ),
    "check_broadcast_add": (
        *usual(checks.check_broadcast_add),
        detached(checks.check_broadcast_add.solution),
        single(checks.check_broadcast_add.solution),
        Wrong(
            "repeated-in-wrong-order",
            "repeat for repeat_interleave (as in wrong grouped-query code)",
            "the shape, and one row each",
            repeated,
        ),
        Wrong("same-axis", "the same unsqueeze twice", "T = S", both_at_two),
        Wrong(
            "swapped-axes",
            "the two unsqueezes have changed places",
            "every number, turned",
            axes_swapped,
        ),
        Wrong("shape", "the pairs in one axis", "every number", flattened),
        Wrong(
            "numbers",
            "the batch of b is summed away",
            "a batch of one",
            batch_added,
        ),
        Wrong(
            "numbers",
            "a slice that keeps one row",
            "S = 1",
            plus_first_row,
        ),
        Wrong(
            "no-new-axis",
            "broadcasting is trusted to do it all",
            "nothing",
            torch.add,
        ),
        Wrong(
            "product",
            "* for +",
            "the shape",
            lambda a, b: torch.einsum("bta,bsa->btsa", a, b),
        ),
    ),
    "check_gradient": (
        *usual(checks.check_gradient),
        single(checks.check_gradient.solution),
        Wrong("twice", "backward in a loop", "the direction", accumulated),
        Wrong(
            "half-chain",
            "requires_grad on the weights",
            "the shape",
            of_the_weights,
        ),
        Wrong(
            "entry-by-entry",
            "the derivative of a sigmoid, applied to softmax",
            "the sign of the largest",
            elementwise,
        ),
        Wrong(
            "constant",
            "sum before square",
            "the shape",
            summed_first,
        ),
        Wrong(
            "numbers",
            "one factor is detached: half the gradient",
            "the direction",
            cut,
        ),
        Wrong("none", "backward is never called", "nothing", never_called),
        Wrong(
            "shape",
            "the Jacobian of the softmax",
            "a step on the way",
            jacobian,
        ),
        Wrong(
            "numbers",
            "a difference quotient",
            "two digits",
            rough,
        ),
        Wrong(
            "value",
            "the forward pass alone",
            "the value",
            lambda x: F.softmax(x, 0).pow(2).sum(),
        ),
    ),
    "check_gru_step": (
        *usual(checks.check_gru_step),
        detached(checks.check_gru_step.solution),
        single(checks.check_gru_step.solution),
        Wrong(
            "update-reversed",
            "Chung et al. (2014) give the gate the other direction",
            "a gate of one half",
            paper_gru,
        ),
        Wrong(
            "gates-swapped",
            "Keras stacks update, reset, new",
            "the shape",
            update_first,
        ),
        Wrong(
            "reset-before-product",
            "Cho et al. (2014), equation 8",
            "a reset gate of 1",
            reset_before,
        ),
        Wrong("numbers", "a plain RNN", "the shape", plain_rnn),
        Wrong(
            "no-reset",
            "the minimal gated unit has none",
            "a reset gate of 1",
            unreset,
        ),
        Wrong(
            "numbers",
            "relu for tanh",
            "small positive candidates, nearly",
            relu_candidate,
        ),
        Wrong(
            "numbers",
            "gates are interleaved, as in some weight files",
            "states of width 1",
            interleaved_gates,
        ),
        Wrong(
            "ready-made",
            "nn.GRUCell with the weights copied in",
            "every number forwards",
            cell_of_torch(nn.GRUCell),
        ),
    ),
    "check_lstm_step": (
        *usual(checks.check_lstm_step),
        detached(checks.check_lstm_step.solution),
        single(checks.check_lstm_step.solution),
        Wrong(
            "numbers",
            "TensorFlow's BasicLSTMCell stacks input, new, forget, output",
            "the shape",
            tensorflow_order,
        ),
        Wrong(
            "output-third",
            "most papers list input, forget, output, new",
            "the shape",
            paper_order,
        ),
        Wrong(
            "states-swapped",
            "TensorFlow's state is (c, h)",
            "every number, in the wrong place",
            cell_first,
        ),
        Wrong(
            "no-forget",
            "the cell of 1997 had no forget gate",
            "a cell that starts at 0",
            never_forgets,
        ),
        Wrong(
            "output-without-tanh",
            "one tanh overlooked",
            "the cell",
            shows_the_cell,
        ),
        Wrong(
            "old-cell-shown",
            "h is computed one line too early",
            "the cell",
            stale,
        ),
        Wrong(
            "numbers",
            "1 added to the forget gate, as initialisation advises",
            "a cell that starts at 0",
            forget_biased,
        ),
        Wrong("type", "only h is returned", "h", hidden_only),
        Wrong(
            "ready-made",
            "nn.LSTMCell with the weights copied in",
            "every number forwards",
            cell_of_torch(nn.LSTMCell),
        ),
    ),
}
