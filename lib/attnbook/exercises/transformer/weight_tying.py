"""Exercise: one table that reads symbols and writes logits.

Chapter: chapters/09_transformer
Source: Press and Wolf (2017), section 2, https://arxiv.org/abs/1608.05859;
    the √C: Vaswani et al. (2017), section 3.4,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T places, C width, V symbols
"""

import torch
from torch.nn import functional as F

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal, whole
from attnbook.solutions.transformer import tied


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One symbol; then several, V ≠ C; then V = C and T = V."""

    def inputs(v, c, b, t):
        ids = whole(rng, 0, v - 1, b, t)
        return normal(rng, v, c), ids, normal(rng, b, t, c)

    usual = inputs(11, 5, 2, 3)
    return (
        Case("with one symbol", inputs(3, 2, 1, 1)),
        Case("with 11 symbols and C = 5", usual, gradient=True),
        Case("with 3 symbols and C = 7", inputs(3, 7, 2, 5), gradient=True),
        Case("with as many symbols as columns", inputs(5, 5, 2, 3)),
        Case("with T = V", inputs(5, 3, 2, 5)),
        Case("in double precision", doubled(usual)),
    )


def changed(
    read=lambda rows, C, V: rows * C**0.5, write=lambda s, table: s @ table.T
):
    """Return an answer that reads or writes in another way."""

    def answer(table, ids, states):
        V, C = table.shape
        return read(table[ids], C, V), write(states, table)

    return answer


check_weight_tying = Exercise(
    title="one table, used twice",
    stars=1,
    minutes=10,
    section="One table",
    solution=tied,
    returns=("vectors", "logits"),
    draw=draw,
    allowed="Everything is allowed.",
    mistakes=(
        Mistake(
            "no-scale",
            "the vectors are not multiplied by √C, and the waves of the "
            "positions drown them",
            changed(read=lambda rows, C, V: rows + 0),
        ),
        Mistake(
            "divided",
            "the vectors are divided by √C; they are multiplied by it",
            changed(read=lambda rows, C, V: rows * C**-0.5),
        ),
        Mistake(
            "by-width",
            "the vectors are multiplied by C; its root is meant",
            changed(read=lambda rows, C, V: rows * C),
        ),
        Mistake(
            "by-symbols",
            "the vectors are multiplied by √V; the width's root is meant",
            changed(read=lambda rows, C, V: rows * V**0.5),
        ),
        Mistake(
            "both-scaled",
            "the logits are multiplied by √C as well; only what is read is",
            changed(write=lambda s, table: s @ table.T * s.shape[-1] ** 0.5),
        ),
        Mistake(
            "logits-divided",
            "the logits are divided by √C, as if they were scores of an "
            "attention",
            changed(write=lambda s, table: s @ table.T * s.shape[-1] ** -0.5),
        ),
        Mistake(
            "logits-normalised",
            "the softmax is already taken; these are probabilities, not logits",
            changed(write=lambda s, table: (s @ table.T).softmax(-1)),
        ),
        Mistake(
            "log-normalised",
            "the log_softmax is already taken, and cross-entropy takes it "
            "again",
            changed(write=lambda s, table: (s @ table.T).log_softmax(-1)),
        ),
        Mistake(
            "cosine",
            "states and rows are brought to length 1 first",
            changed(
                write=lambda s, table: (
                    F.normalize(s, dim=-1) @ F.normalize(table, dim=-1).T
                )
            ),
        ),
        Mistake(
            "untied-by-detach",
            "the output's gradient does not reach the table: it is used once",
            changed(write=lambda s, table: s @ table.detach().T),
        ),
        Mistake(
            "reading-detached",
            "the input's gradient does not reach the table: it is used once",
            changed(read=lambda rows, C, V: rows.detach() * C**0.5),
        ),
    ),
)
