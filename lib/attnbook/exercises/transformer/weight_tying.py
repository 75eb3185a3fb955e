"""Exercise: one table that reads symbols and writes logits.

Source: Press and Wolf (2017), section 2, https://arxiv.org/abs/1608.05859;
    the √C: Vaswani et al. (2017), section 3.4,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T places, C width, V symbols
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, to_double


def tie_weights(
    table: Float[Tensor, "V C"],
    ids: Int[Tensor, "B T"],
    states: Float[Tensor, "B T C"],
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T V"]]:
    """Return the vectors of symbols, and the logits of states: one table."""
    return table[ids] * table.shape[1] ** 0.5, states @ table.T


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One symbol; then several, V ≠ C; then V = C and T = V."""

    def inputs(v, c, b, t):
        ids = draw_integers(rng, 0, v - 1, b, t)
        return draw_normal(rng, v, c), ids, draw_normal(rng, b, t, c)

    usual = inputs(11, 5, 2, 3)
    return (
        Case("with one symbol", inputs(3, 2, 1, 1)),
        Case("with 11 symbols and C = 5", usual, gradient=True),
        Case("with 3 symbols and C = 7", inputs(3, 7, 2, 5), gradient=True),
        Case("with as many symbols as columns", inputs(5, 5, 2, 3)),
        Case("with T = V", inputs(5, 3, 2, 5)),
        Case("in double precision", to_double(usual), asked=False),
    )


check_weight_tying = Exercise(
    title="tied embeddings",
    stars=1,
    minutes=10,
    section="Embeddings and weight tying",
    solution=tie_weights,
    returns=("vectors", "logits"),
    draw=draw,
    allowed="Everything is allowed.",
    mistakes=(
        Mistake(
            "no-scale",
            "embeddings not multiplied by √C",
            "the embeddings are not multiplied by √C, so the positional "
            "encodings dominate them",
            " * table.shape[1] ** 0.5 → ",
        ),
        Mistake(
            "divided",
            "embeddings divided by √C",
            "the embeddings are divided by √C; they should be multiplied by it",
            "0.5 → -0.5",
        ),
        Mistake(
            "by-width",
            "multiplied by C, not by √C",
            "the embeddings are multiplied by C; they should be multiplied by √C",
            " ** 0.5 → ",
        ),
        Mistake(
            "by-symbols",
            "multiplied by √V, not by √C",
            "the embeddings are multiplied by √V; they should be multiplied by √C",
            "shape[1] → shape[0]",
        ),
        Mistake(
            "both-scaled",
            "logits scaled as well",
            "the logits are multiplied by √C as well; only the embeddings should be",
            "states @ table.T → states @ table.T * table.shape[1] ** 0.5",
        ),
        Mistake(
            "logits-divided",
            "logits divided by √C",
            "the logits are divided by √C, as if they were attention scores",
            "states @ table.T → states @ table.T * table.shape[1] ** -0.5",
        ),
        Mistake(
            "logits-normalised",
            "probabilities instead of logits",
            "the softmax has already been applied: these are probabilities, "
            "and the exercise asks for logits",
            "states @ table.T → (states @ table.T).softmax(-1)",
        ),
        Mistake(
            "log-normalised",
            "log-probabilities instead of logits",
            "the log-softmax has already been applied, and the cross-entropy "
            "would apply it again",
            "states @ table.T → (states @ table.T).log_softmax(-1)",
        ),
        Mistake(
            "cosine",
            "cosine similarity",
            "states and embeddings are normalized to length 1 first; the "
            "logits are plain dot products",
            lambda table, ids, states: (
                tie_weights(table, ids, states)[0],
                F.normalize(states, dim=-1) @ F.normalize(table, dim=-1).T,
            ),
        ),
        Mistake(
            "untied-by-detach",
            "embeddings detached in the output",
            "no gradient reaches the embeddings from the output layer: they "
            "are detached there",
            "table.T → table.detach().T",
        ),
        Mistake(
            "reading-detached",
            "embeddings detached in the input",
            "no gradient reaches the embeddings from the input: they are "
            "detached there",
            "table[ids] → table[ids].detach()",
        ),
    ),
)
