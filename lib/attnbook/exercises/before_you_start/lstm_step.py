"""Exercise: one step of an LSTM, as PyTorch computes it.

Source: Hochreiter and Schmidhuber (1997) with the forget gate of Gers et al.
    (2000), in the form of PyTorch's nn.LSTM
Axes: B batch, I input width, N state width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.exercises.solutions.before_you_start import lstm_step


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """From states of zeros, then from any, then with equal widths."""

    def inputs(b, i, n):
        return (
            normal(rng, b, i),
            normal(rng, b, n),
            normal(rng, b, n),
            normal(rng, 4 * n, i),
            normal(rng, 4 * n, n),
            normal(rng, 4 * n),
            normal(rng, 4 * n),
        )

    usual = inputs(2, 3, 5)
    x, h, _, *rest = inputs(2, 3, 5)
    zeros = torch.zeros_like(h)
    return (
        Case("from states of zeros", (x, zeros, zeros, *rest)),
        Case("from any states", usual, gradient=True),
        Case("with equal widths", inputs(3, 3, 3)),
        Case("in double precision", doubled(usual)),
    )


def cell(enter, keep, new, c):
    """Return the next cell state."""
    return keep.sigmoid() * c + enter.sigmoid() * new.tanh()


def shown(out, c, old):
    """Return what the cell shows of its next state."""
    return out.sigmoid() * c.tanh()


def stepped(*, order=(0, 1, 2, 3), cell=cell, shown=shown):
    """Return a step with other gates, another cell or another output."""

    def answer(x, h, c, W_ih, W_hh, b_ih, b_hh):
        gates = (x @ W_ih.T + b_ih + h @ W_hh.T + b_hh).chunk(4, -1)
        enter, keep, new, out = (gates[i] for i in order)
        following = cell(enter, keep, new, c)
        return shown(out, following, c), following

    return answer


check_lstm_step = Exercise(
    title="one LSTM step",
    stars=2,
    minutes=15,
    section="LSTM",
    solution=lstm_step,
    returns=("h", "c"),
    draw=draw,
    allowed="Everything is allowed but a ready-made LSTM.",
    forbidden=frozenset({"lstm", "lstm_cell"}),
    mistakes=(
        Mistake(
            "output-third",
            "output gate third",
            "the third and fourth parts are swapped: the order is input, "
            "forget, new, output",
            stepped(order=(0, 1, 3, 2)),
        ),
        Mistake(
            "gates-swapped",
            "input and forget gates swapped",
            "the input and forget gates are swapped: the order is input, "
            "forget, new, output",
            stepped(order=(1, 0, 2, 3)),
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
            stepped(cell=lambda i, f, g, c: c + i.sigmoid() * g.tanh()),
        ),
        Mistake(
            "no-input-gate",
            "no input gate",
            "the input gate is not used",
            stepped(cell=lambda i, f, g, c: f.sigmoid() * c + g.tanh()),
        ),
        Mistake(
            "coupled-gates",
            "coupled gates",
            "the input gate is computed as 1 minus the forget gate, as in a "
            "GRU; an LSTM has two separate gates",
            stepped(
                cell=lambda i, f, g, c: (
                    f.sigmoid() * c + (1 - f.sigmoid()) * g.tanh()
                )
            ),
        ),
        Mistake(
            "no-output-gate",
            "no output gate",
            "the output gate is not used",
            stepped(shown=lambda out, c, old: c.tanh()),
        ),
        Mistake(
            "output-without-tanh",
            "no tanh for the output",
            "tanh is not applied to the cell state in `h`",
            stepped(shown=lambda out, c, old: out.sigmoid() * c),
        ),
        Mistake(
            "old-cell-shown",
            "output from the old cell",
            "`h` is computed from the old cell state; it should be computed "
            "from the new one",
            stepped(shown=lambda out, c, old: out.sigmoid() * old.tanh()),
        ),
        Mistake(
            "new-without-tanh",
            "no tanh for the candidate",
            "tanh is not applied to the new values that are added to the cell",
            stepped(cell=lambda i, f, g, c: f.sigmoid() * c + i.sigmoid() * g),
        ),
        Mistake(
            "sigmoid-for-tanh",
            "sigmoid instead of tanh",
            "a sigmoid is applied to the new values that are added to the "
            "cell; it should be tanh",
            stepped(
                cell=lambda i, f, g, c: (
                    f.sigmoid() * c + i.sigmoid() * g.sigmoid()
                )
            ),
        ),
        Mistake(
            "cell-squashed",
            "tanh of the cell state",
            "tanh is applied to the returned cell state; it should be applied "
            "only where `h` is computed",
            stepped(
                cell=lambda *x: cell(*x).tanh(),
                shown=lambda out, c, old: out.sigmoid() * c,
            ),
        ),
        Mistake(
            "no-state-bias",
            "state bias missing",
            "the second bias, that of the state's projection, is not used",
            lambda x, h, c, W, U, b, d: lstm_step(x, h, c, W, U, b, 0 * d),
        ),
    ),
)
