"""Exercise: one step of an LSTM, as PyTorch computes it.

Source: Hochreiter and Schmidhuber (1997) with the forget gate of Gers et
    al. (2000), in the form of PyTorch's nn.LSTM
Axes: B batch, I input width, N state width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def lstm_step(
    x: Float[Tensor, "B I"],
    h: Float[Tensor, "B N"],
    c: Float[Tensor, "B N"],
    W_ih: Float[Tensor, "N4 I"],
    W_hh: Float[Tensor, "N4 N"],
    b_ih: Float[Tensor, " N4"],
    b_hh: Float[Tensor, " N4"],
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """Return h and c; weights stacked as input, forget, candidate, output."""
    parts = x @ W_ih.T + b_ih + h @ W_hh.T + b_hh
    a_i, a_f, a_g, a_o = parts.chunk(4, -1)
    c = a_f.sigmoid() * c + a_i.sigmoid() * a_g.tanh()
    return a_o.sigmoid() * c.tanh(), c


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """From states of zeros, then from any, then with equal widths."""

    def inputs(b, i, n):
        return (
            draw_normal(rng, b, i),
            draw_normal(rng, b, n),
            draw_normal(rng, b, n),
            draw_normal(rng, 4 * n, i),
            draw_normal(rng, 4 * n, n),
            draw_normal(rng, 4 * n),
            draw_normal(rng, 4 * n),
        )

    usual = inputs(2, 3, 5)
    x, h, _, *rest = inputs(2, 3, 5)
    zeros = torch.zeros_like(h)
    return (
        Case("from states of zeros", (x, zeros, zeros, *rest)),
        Case("from any states", usual, gradient=True),
        Case("with equal widths", inputs(3, 3, 3)),
        Case("in double precision", to_double(usual), asked=False),
    )


check_lstm_step = Exercise(
    title="one LSTM step",
    stars=2,
    minutes=15,
    section="LSTM",
    solution=lstm_step,
    returns=("new_h", "new_c"),
    draw=draw,
    allowed="Everything is allowed but a ready-made LSTM.",
    forbidden=frozenset({"lstm", "lstm_cell"}),
    mistakes=(
        Mistake(
            "output-third",
            "output gate third",
            "the last two quarters of the projections are swapped; the order "
            "is input, forget, candidate, output",
            "a_g, a_o = → a_o, a_g =",
        ),
        Mistake(
            "gates-swapped",
            "input and forget gates swapped",
            "the input and forget gates are swapped; the order should be "
            "input, forget, candidate, output",
            "a_i, a_f, → a_f, a_i,",
        ),
        Mistake(
            "states-swapped",
            "states returned in wrong order",
            "`h` and `c` are returned in the wrong order",
            lambda *x: lstm_step(*x)[::-1],
        ),
        Mistake(
            "no-forget",
            "no forget gate",
            "the forget gate is not used",
            "a_f.sigmoid() * c → c",
        ),
        Mistake(
            "no-input-gate",
            "no input gate",
            "the input gate is not used",
            "a_i.sigmoid() * a_g → a_g",
        ),
        Mistake(
            "coupled-gates",
            "coupled gates",
            "the input gate is computed as 1 minus the forget gate, as in a "
            "GRU; an LSTM has two separate gates",
            "a_i.sigmoid() → (1 - a_f.sigmoid())",
        ),
        Mistake(
            "no-output-gate",
            "no output gate",
            "the output gate is not used",
            "a_o.sigmoid() * c → c",
        ),
        Mistake(
            "output-without-tanh",
            "no tanh for the output",
            "`h` is computed without the tanh of the cell state",
            "c.tanh() → c",
        ),
        Mistake(
            "old-cell-shown",
            "output from the old cell",
            "`h` is computed from the old cell state; it should be computed "
            "from the new one",
            ("c = a_f → old, c = c, a_f", "c.tanh() → old.tanh()"),
        ),
        Mistake(
            "candidate-without-tanh",
            "no tanh for the candidate",
            "tanh is not applied to the candidate, which is added to the cell state",
            "a_g.tanh() → a_g",
        ),
        Mistake(
            "sigmoid-for-tanh",
            "sigmoid instead of tanh",
            "a sigmoid is applied to the candidate; it should be tanh",
            "a_g.tanh() → a_g.sigmoid()",
        ),
        Mistake(
            "cell-squashed",
            "tanh of the cell state",
            "tanh is applied to the returned cell state; it should be applied "
            "only where `h` is computed",
            (
                "c.tanh() → c",
                "a_f.sigmoid() * c + a_i.sigmoid() * a_g.tanh() "
                "→ (a_f.sigmoid() * c + a_i.sigmoid() * a_g.tanh()).tanh()",
            ),
        ),
        Mistake(
            "no-state-bias",
            "state bias missing",
            "the second bias, that of the state's projection, is not used",
            " + b_hh → ",
        ),
    ),
)
