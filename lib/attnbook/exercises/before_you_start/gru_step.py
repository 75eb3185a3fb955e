"""Exercise: one step of a GRU, as PyTorch computes it.

Source: Cho et al. (2014), section 2.3, https://arxiv.org/abs/1406.1078, in the
    variant of PyTorch's nn.GRU (the reset gate after the product)
Axes: B batch, I input width, N state width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


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


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """From a state of zeros, then from any, then with equal widths."""

    def inputs(b, i, n):
        return (
            draw_normal(rng, b, i),
            draw_normal(rng, b, n),
            draw_normal(rng, 3 * n, i),
            draw_normal(rng, 3 * n, n),
            draw_normal(rng, 3 * n),
            draw_normal(rng, 3 * n),
        )

    usual = inputs(2, 3, 5)
    x, h, *rest = inputs(2, 3, 5)
    return (
        Case("from a state of zeros", (x, torch.zeros_like(h), *rest)),
        Case("from any state", usual, gradient=True),
        Case("with equal widths", inputs(3, 3, 3)),
        Case("in double precision", to_double(usual), asked=False),
    )


def reset_before_product(x, h, W_ih, W_hh, b_ih, b_hh):
    """Reset the state before the product, as the paper does."""
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3, -1)
    r_h, z_h, _ = (h @ W_hh.T + b_hh).chunk(3, -1)
    reset, update = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = len(W_ih) // 3
    candidate = (n_x + (reset * h) @ W_hh[2 * n :].T + b_hh[2 * n :]).tanh()
    return (1 - update) * candidate + update * h


def add_bias_after_reset(x, h, W_ih, W_hh, b_ih, b_hh):
    """Add the bias of the state's part after the reset."""
    n = len(W_ih) // 3
    b = torch.cat([b_hh[: 2 * n], torch.zeros_like(b_hh[2 * n :])])
    moved = torch.cat([b_ih[: 2 * n], b_ih[2 * n :] + b_hh[2 * n :]])
    return gru_step(x, h, W_ih, W_hh, moved, b)


check_gru_step = Exercise(
    title="one GRU step",
    stars=2,
    minutes=15,
    section="GRU",
    solution=gru_step,
    returns=("new_h",),
    draw=draw,
    allowed="Everything is allowed but a ready-made GRU.",
    forbidden=frozenset({"gru", "gru_cell"}),
    mistakes=(
        Mistake(
            "update-reversed",
            "update gate reversed",
            "the update gate is reversed: in PyTorch, z = 1 keeps the old "
            "state (papers differ in this)",
            "(1 - update) * candidate + update * h "
            "→ update * candidate + (1 - update) * h",
        ),
        Mistake(
            "gates-swapped",
            "reset and update gates swapped",
            "the reset and update gates are swapped; the order should be "
            "reset, update, candidate",
            (
                "r_x, z_x, n_x = → z_x, r_x, n_x =",
                "r_h, z_h, n_h = → z_h, r_h, n_h =",
            ),
        ),
        Mistake(
            "update-for-reset",
            "update gate in place of the reset gate",
            "the candidate uses the update gate; it should use the reset gate",
            "n_x + reset * n_h → n_x + update * n_h",
        ),
        Mistake(
            "candidate-first",
            "candidate taken first",
            "the candidate is taken from the first third of the projections, "
            "but the order is reset, update, candidate",
            (
                "r_x, z_x, n_x = → n_x, r_x, z_x =",
                "r_h, z_h, n_h = → n_h, r_h, z_h =",
            ),
        ),
        Mistake(
            "reset-before-product",
            "reset gate before the product",
            "the reset gate is applied to the state before the matrix "
            "product, as in the paper; PyTorch applies it after the product",
            reset_before_product,
        ),
        Mistake(
            "bias-outside-reset",
            "bias outside the reset gate",
            "the reset gate is not applied to the bias of the state's "
            "projection; it should be",
            add_bias_after_reset,
        ),
        Mistake(
            "no-reset",
            "no reset gate",
            "the reset gate is not used",
            "reset * n_h → n_h",
        ),
        Mistake(
            "reset-on-all",
            "reset gate on the input",
            "the reset gate is also applied to the input's projection; it "
            "should be applied to the state's projection only",
            "(n_x + reset * n_h) → (reset * (n_x + n_h))",
        ),
        Mistake(
            "no-update",
            "no update gate",
            "the update gate is not used, so the old state is lost",
            "(1 - update) * candidate + update * h → candidate",
        ),
        Mistake(
            "no-tanh",
            "no tanh",
            "tanh is not applied to the candidate",
            ".tanh() → ",
        ),
        Mistake(
            "sigmoid-for-tanh",
            "sigmoid instead of tanh",
            "a sigmoid is applied to the candidate; it should be tanh",
            ".tanh() → .sigmoid()",
        ),
        Mistake(
            "old-state-whole",
            "old state not gated",
            "the old state is added without being multiplied by the update gate",
            "update * h → h",
        ),
        Mistake(
            "no-state-bias",
            "state bias missing",
            "the second bias, that of the state's projection, is not used",
            " + b_hh → ",
        ),
        Mistake(
            "no-input-bias",
            "input bias missing",
            "the first bias, that of the input's projection, is not used",
            " + b_ih → ",
        ),
    ),
)
