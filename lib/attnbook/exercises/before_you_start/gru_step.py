"""Exercise: one step of a GRU, as PyTorch computes it.

Chapter: chapters/00_before_you_start
Source: Cho et al. (2014), section 2.3, https://arxiv.org/abs/1406.1078, in the
    variant of PyTorch's nn.GRU (the reset gate after the product)
Axes: B batch, I input width, N state width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.solutions.before_you_start import gru_step


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """From a state of zeros, then from any, then with equal widths."""

    def inputs(b, i, n):
        return (
            normal(rng, b, i),
            normal(rng, b, n),
            normal(rng, 3 * n, i),
            normal(rng, 3 * n, n),
            normal(rng, 3 * n),
            normal(rng, 3 * n),
        )

    usual = inputs(2, 3, 5)
    x, h, *rest = inputs(2, 3, 5)
    return (
        Case("from a state of zeros", (x, torch.zeros_like(h), *rest)),
        Case("from any state", usual, gradient=True),
        Case("with equal widths", inputs(3, 3, 3)),
        Case("in double precision", doubled(usual)),
    )


def stepped(
    *,
    order=(0, 1, 2),
    new=lambda n_x, n_h, reset: (n_x + reset * n_h).tanh(),
    mix=lambda update, new, h: (1 - update) * new + update * h,
):
    """Return a step with other gates, another new state or another mixture."""

    def answer(x, h, W_ih, W_hh, b_ih, b_hh):
        of_x = (x @ W_ih.T + b_ih).chunk(3, -1)
        of_h = (h @ W_hh.T + b_hh).chunk(3, -1)
        r, z, n = order
        reset = (of_x[r] + of_h[r]).sigmoid()
        update = (of_x[z] + of_h[z]).sigmoid()
        return mix(update, new(of_x[n], of_h[n], reset), h)

    return answer


def reset_first(x, h, W_ih, W_hh, b_ih, b_hh):
    """Reset the state before the product, as the paper does."""
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3, -1)
    r_h, z_h, _ = (h @ W_hh.T + b_hh).chunk(3, -1)
    reset, update = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = len(W_ih) // 3
    new = (n_x + (reset * h) @ W_hh[2 * n :].T + b_hh[2 * n :]).tanh()
    return (1 - update) * new + update * h


def bias_outside(x, h, W_ih, W_hh, b_ih, b_hh):
    """Add the bias of the state's part after the reset."""
    n = len(W_ih) // 3
    b = torch.cat([b_hh[: 2 * n], torch.zeros_like(b_hh[2 * n :])])
    moved = torch.cat([b_ih[: 2 * n], b_ih[2 * n :] + b_hh[2 * n :]])
    return gru_step(x, h, W_ih, W_hh, moved, b)


check_gru_step = Exercise(
    title="one step of a GRU",
    stars=2,
    minutes=15,
    section="GRU",
    solution=gru_step,
    returns=("h",),
    draw=draw,
    allowed="Everything is allowed but a ready-made GRU.",
    forbidden=frozenset({"gru", "gru_cell"}),
    mistakes=(
        Mistake(
            "update-reversed",
            "the update gate keeps what it should replace; papers differ in "
            "this, and in PyTorch z = 1 keeps the old state",
            stepped(mix=lambda z, new, h: z * new + (1 - z) * h),
        ),
        Mistake(
            "gates-swapped",
            "reset and update have changed places: the order is reset, "
            "update, new",
            stepped(order=(1, 0, 2)),
        ),
        Mistake(
            "new-first",
            "the new state is taken from the first third: the order is "
            "reset, update, new",
            stepped(order=(1, 2, 0)),
        ),
        Mistake(
            "reset-before-product",
            "the reset gate acts on the state before the product, as in the "
            "paper; PyTorch applies it after",
            reset_first,
        ),
        Mistake(
            "bias-outside-reset",
            "the reset gate must also act on the bias of the state's part",
            bias_outside,
        ),
        Mistake(
            "no-reset",
            "the reset gate is not used",
            stepped(new=lambda n_x, n_h, r: (n_x + n_h).tanh()),
        ),
        Mistake(
            "reset-on-all",
            "the reset gate acts on the input's part too",
            stepped(new=lambda n_x, n_h, r: (r * (n_x + n_h)).tanh()),
        ),
        Mistake(
            "no-update",
            "the update gate is not used: the old state is gone",
            stepped(mix=lambda z, new, h: new),
        ),
        Mistake(
            "no-tanh",
            "there is no tanh around the new state",
            stepped(new=lambda n_x, n_h, r: n_x + r * n_h),
        ),
        Mistake(
            "sigmoid-for-tanh",
            "the new state goes through a sigmoid; tanh belongs there",
            stepped(new=lambda n_x, n_h, r: (n_x + r * n_h).sigmoid()),
        ),
        Mistake(
            "old-state-whole",
            "the old state is added whole, not in the share of the update gate",
            stepped(mix=lambda z, new, h: (1 - z) * new + h),
        ),
        Mistake(
            "no-state-bias",
            "the second bias is left out",
            lambda x, h, W, U, b, d: gru_step(x, h, W, U, b, 0 * d),
        ),
        Mistake(
            "no-input-bias",
            "the first bias is left out",
            lambda x, h, W, U, b, d: gru_step(x, h, W, U, 0 * b, d),
        ),
    ),
)
