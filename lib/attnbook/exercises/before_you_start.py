"""The exercises of the self-check before the first chapter.

Source: PyTorch's documentation of `torch.matmul`, broadcasting and autograd; the GRU
    of Cho et al. (2014), section 2.3, https://arxiv.org/abs/1406.1078, as `nn.GRU`
    computes it (the reset gate after the product)
Axes: B batch, T queries, S keys, D key width, A alignment width, I input width, N
    state width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.declare import Case, Exercise


def softmax(x: Float[Tensor, "T S"]) -> Float[Tensor, "T S"]:
    """Return positive weights that sum to 1 over the last axis."""
    exponentials = (x - x.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def divide_by_sum(x: Tensor, axis: int) -> Tensor:
    """Return numbers that sum to 1 over an axis."""
    return x / x.sum(axis, keepdim=True)


def softmax_cases(draw):
    yield "on three numbers", torch.tensor([[1.0, 2.0, 3.0]])
    yield "on two rows", draw.normal(2, 5)
    yield "on a square table", draw.normal(4, 4)
    yield "on long rows", draw.normal(3, 200)
    yield "on large numbers", draw.normal(2, 5) + 1000
    yield "on very negative numbers", draw.normal(2, 5) - 1000
    yield "on rows of very different size", draw.normal(2, 5) + 500 * torch.eye(2, 1)
    low = -(2.0**40) * torch.tensor([draw.shuffle([1.0, 2.0, 3.0])])
    yield Case("on numbers far below zero", (low,), gradient=False)
    low = torch.full((2, 1), -60000.0, dtype=torch.float16)
    yield "on one number far below zero, in half precision", low


check_softmax = Exercise(
    softmax,
    softmax_cases,
    stars=1,
    minutes=5,
    section="Softmax",
    returns=("weights",),
    forbidden=frozenset({"softmax", "log_softmax", "softmin"}),
    mistakes={
        "unstable": (
            "`exp` overflows on large numbers; subtract the maximum first",
            "(x - x.amax(-1, keepdim=True)).exp() → x.exp()",
        ),
        "wrong-axis": (
            "the weights sum to 1 over another axis; they should sum to 1 over the "
            "last one",
            [
                lambda x: divide_by_sum((x - x.amax(0)).exp(), 0),
                lambda x: divide_by_sum((x - x.amax(-2, keepdim=True)).exp(), -2),
                lambda x: divide_by_sum((x - x.amax(-1, keepdim=True)).exp(), 0),
                lambda x: divide_by_sum(x.exp(), 0),
                lambda x: divide_by_sum(x.exp(), -2),
            ],
        ),
        "whole-table": (
            "the weights sum to 1 over the whole tensor; they should sum to 1 over "
            "the last axis",
            [
                lambda x: (x - x.max()).exp() / (x - x.max()).exp().sum(),
                lambda x: x.exp() / x.exp().sum(),
            ],
        ),
        "not-divided": (
            "the exponentials are not divided by their sum",
            [lambda x: x.exp(), " / exponentials.sum(-1, keepdim=True) → "],
        ),
        "mean-for-sum": (
            "the exponentials are divided by their mean; divide by their sum",
            ".sum(-1 → .mean(-1",
        ),
        "no-exp": (
            "the numbers are divided by their sum without an exponential",
            lambda x: x / x.sum(-1, keepdim=True),
        ),
    },
)


def batched_product(
    query: Float[Tensor, "B T D"], key: Float[Tensor, "B S D"]
) -> Float[Tensor, "B T S"]:
    """Return the product of every query with every key of its sequence."""
    return query @ key.mT


def pair_cases(draw):
    def inputs(b, t, s, width):
        return draw.normal(b, t, width), draw.normal(b, s, width)

    yield "with one row each", *inputs(1, 1, 1, 3)
    yield "with 3 rows and 5 rows", *inputs(2, 3, 5, 7)
    yield "with as many rows of both", *inputs(2, 4, 4, 3)
    yield "with all axes equal", *inputs(3, 3, 3, 3)
    yield "with many rows", *inputs(5, 33, 40, 6)


check_batched_product = Exercise(
    batched_product,
    pair_cases,
    stars=1,
    minutes=5,
    section="Batched products",
    title="batched product of queries and keys",
    returns=("products",),
    mistakes={
        "reshaped": (
            "the keys are reshaped instead of transposed: the shape is right, but the "
            "entries are in the wrong order",
            lambda q, k: q @ k.reshape(len(k), k.shape[2], k.shape[1]),
        ),
        "batch-transposed": (
            "`.T` reverses all axes, the batch axis included; `.mT` exchanges only "
            "the last two",
            lambda q, k: q @ k.permute(2, 1, 0),
        ),
        "not-transposed": ("the keys are not transposed", ".mT → "),
        "elementwise": (
            "queries and keys are multiplied elementwise; a matrix product is needed",
            "query @ key.mT → query * key",
        ),
        "swapped-axes": (
            "the axes of queries and keys are swapped; the result should have the "
            "shape (B, T, S)",
            "query @ key.mT → key @ query.mT",
        ),
        "scaled": (
            "the result is divided by √D; only the product is required",
            "key.mT → key.mT / key.shape[-1] ** 0.5",
        ),
    },
    hints=(
        "Which axis do `query` and `key` have in common? The product sums over it.",
        "`@` multiplies the matrices in the last two axes; exchange these two axes of "
        "`key` first.",
    ),
)


def broadcast_add(
    a: Float[Tensor, "B T A"], b: Float[Tensor, "B S A"]
) -> Float[Tensor, "B T S A"]:
    """Return the sum of every row of a with every row of b."""
    return a[:, :, None] + b[:, None]


check_broadcast_add = Exercise(
    broadcast_add,
    pair_cases,
    stars=1,
    minutes=5,
    section="Broadcasting",
    title="broadcast sum of two tensors",
    returns=("sums",),
    mistakes={
        "no-new-axis": (
            "no axis is inserted, so each row of `a` is added only to the row of `b` "
            "with the same index",
            "a[:, :, None] + b[:, None] → a + b",
        ),
        "swapped-axes": (
            "the new axes are swapped; the shape should be (B, T, S, A)",
            "a[:, :, None] + b[:, None] → a[:, None] + b[:, :, None]",
        ),
        "same-axis": (
            "both tensors get their new axis in the same position",
            "b[:, None] → b[:, :, None]",
        ),
        "repeated-in-wrong-order": (
            "the rows are repeated in the wrong order: `repeat` gives 0 1 2 0 1 2, "
            "`repeat_interleave` gives 0 0 1 1 2 2",
            lambda a, b: (
                a.repeat(1, b.shape[1], 1).view(len(a), a.shape[1], b.shape[1], -1)
                + b[:, None]
            ),
        ),
        "product": ("the rows are multiplied; they should be added", " + → * "),
        "summed-away": (
            "the last axis is summed away; it should be kept",
            lambda a, b: (a[:, :, None] + b[:, None]).sum(-1),
        ),
    },
)


def gradient(x: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Return the gradient of the sum of squares of softmax(x)."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad((x.softmax(-1) ** 2).sum(), x)[0]


def gradient_cases(draw):
    # The answer differentiates by itself, perhaps with `backward` and `.grad`.
    yield Case("on two numbers", (draw.normal(2),), gradient=False)
    yield Case("on seven numbers", (draw.normal(7),), gradient=False)
    yield Case("on large numbers", (draw.normal(7) + 500,), gradient=False)
    yield Case("on very negative numbers", (draw.normal(7) - 1000,), gradient=False)
    yield Case("on many numbers", (draw.normal(150),), gradient=False)


check_gradient = Exercise(
    gradient,
    gradient_cases,
    stars=2,
    minutes=5,
    section="Autograd",
    title="a gradient with autograd",
    returns=("gradient",),
    mistakes={
        "value": (
            "it returns the sum of the squares, not its gradient",
            lambda x: (x.softmax(-1) ** 2).sum(),
        ),
        "half-chain": (
            "the chain rule stops at the softmax: this is the gradient with respect "
            "to the weights, not with respect to x",
            lambda x: 2 * x.softmax(-1),
        ),
        "entry-by-entry": (
            "the softmax is differentiated as an elementwise function; each weight "
            "depends on every entry of x",
            lambda x: 2 * x.softmax(-1) ** 2 * (1 - x.softmax(-1)),
        ),
        "constant": (
            "the sum of the weights is differentiated, which is 1 for every x; the "
            "exercise asks for the sum of their squares",
            "(x.softmax(-1) ** 2).sum() → x.softmax(-1).sum()",
        ),
        "twice": (
            "the gradient is accumulated twice: each call of `backward` adds to "
            "`.grad`",
            "** 2).sum(), x)[0] → ** 2).sum(), x)[0] * 2",
        ),
        "descent": (
            "the sign is wrong: this is the negative gradient, the direction of "
            "gradient descent",
            "return torch → return -torch",
        ),
    },
)


def gru_step(
    x: Float[Tensor, "B I"],
    h: Float[Tensor, "B N"],
    W_ih: Float[Tensor, "N3 I"],
    W_hh: Float[Tensor, "N3 N"],
    b_ih: Float[Tensor, " N3"],
    b_hh: Float[Tensor, " N3"],
) -> Float[Tensor, "B N"]:
    """Return the next state; weights stacked as reset, update, candidate."""
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3, -1)
    r_h, z_h, n_h = (h @ W_hh.T + b_hh).chunk(3, -1)
    reset, update = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    candidate = (n_x + reset * n_h).tanh()
    return (1 - update) * candidate + update * h


def gru_cases(draw):
    def inputs(b, i, n):
        return (
            draw.normal(b, i),
            draw.normal(b, n),
            draw.normal(3 * n, i),
            draw.normal(3 * n, n),
            draw.normal(3 * n),
            draw.normal(3 * n),
        )

    x, h, *rest = inputs(2, 3, 5)
    yield "from a state of zeros", x, torch.zeros_like(h), *rest
    yield "from any state", *inputs(2, 3, 5)
    yield "with equal widths", *inputs(3, 3, 3)
    yield "with a larger batch", *inputs(40, 3, 7)


def reset_before_product(x, h, W_ih, W_hh, b_ih, b_hh):
    """Reset the state before the product, as the paper does."""
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3, -1)
    r_h, z_h, _ = (h @ W_hh.T + b_hh).chunk(3, -1)
    reset, update = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = len(W_ih) // 3
    candidate = (n_x + (reset * h) @ W_hh[2 * n :].T + b_hh[2 * n :]).tanh()
    return (1 - update) * candidate + update * h


check_gru_step = Exercise(
    gru_step,
    gru_cases,
    stars=2,
    minutes=15,
    section="GRU",
    title="one GRU step",
    returns=("new_h",),
    forbidden=frozenset({"gru", "gru_cell"}),
    mistakes={
        "update-reversed": (
            "the update gate is reversed: in PyTorch, z = 1 keeps the old state "
            "(papers differ in this)",
            "(1 - update) * candidate + update * h "
            "→ update * candidate + (1 - update) * h",
        ),
        "gates-swapped": (
            "the reset and update gates are swapped; the order should be reset, "
            "update, candidate",
            "r_x, z_x, n_x = → z_x, r_x, n_x = ; r_h, z_h, n_h = → z_h, r_h, n_h =",
        ),
        "reset-before-product": (
            "the reset gate is applied to the state before the matrix product, as in "
            "the paper; PyTorch applies it after the product",
            reset_before_product,
        ),
        "bias-outside-reset": (
            "the reset gate is not applied to the bias of the state's projection; it "
            "should be",
            "reset * n_h → reset * (n_h - b_hh.chunk(3, -1)[2]) + b_hh.chunk(3, -1)[2]",
        ),
        "no-reset": ("the reset gate is not used", "reset * n_h → n_h"),
        "sigmoid-for-tanh": (
            "a sigmoid is applied to the candidate; it should be tanh",
            ".tanh() → .sigmoid()",
        ),
        "no-state-bias": (
            "the second bias, that of the state's projection, is not used",
            " + b_hh → ",
        ),
    },
)
