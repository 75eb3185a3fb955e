"""Exercise: the additive score of every query and key.

Source: Bahdanau, Cho and Bengio (2015), section 3.1.1 and appendix
    A.1.2, https://arxiv.org/abs/1409.0473
Axes: B batch, T queries, S keys, Dq query width, Dk key width,
    A alignment width
"""

import torch

from attnbook.attention import additive
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def draw_scores(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then T ≠ S and Dq ≠ Dk; then what hides a mistake."""

    def inputs(b, t, s, dq, dk, a):
        return (
            draw_normal(rng, b, t, dq),
            draw_normal(rng, b, s, dk),
            draw_normal(rng, a, dq),
            draw_normal(rng, a, dk),
            draw_normal(rng, a),
        )

    usual = inputs(2, 3, 5, 7, 11, 13)
    return (
        Case("with one query and one key", inputs(1, 1, 1, 2, 3, 5)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with as many queries as keys", inputs(2, 4, 4, 3, 3, 3)),
        Case("with large inputs", tuple(x * 8 for x in inputs(2, 3, 5, 2, 3, 5))),
        Case("in double precision", to_double(usual), asked=False),
    )


def apply_activation(bend):
    """Return additive scores with another function in tanh's place."""

    def scores(query, key, W_query, W_key, v):
        queries, keys = query @ W_query.T, key @ W_key.T
        return bend(queries[:, :, None] + keys[:, None]) @ v

    return scores


check_additive_scores = Exercise(
    title="additive scores",
    stars=1,
    minutes=10,
    section="The additive score",
    solution=additive.additive_scores,
    returns=("scores",),
    draw=draw_scores,
    mistakes=(
        Mistake(
            "relu-for-tanh",
            "ReLU instead of tanh",
            "the activation is ReLU; it should be tanh",
            apply_activation(torch.relu),
        ),
        Mistake(
            "no-tanh",
            "no tanh",
            "tanh is not applied to the sum of the projections",
            apply_activation(lambda x: x),
        ),
        Mistake(
            "sigmoid-for-tanh",
            "sigmoid instead of tanh",
            "the activation is a sigmoid; it should be tanh",
            apply_activation(torch.sigmoid),
        ),
        Mistake(
            "tanh-too-early",
            "tanh before the sum",
            "tanh is applied to the query and to the key before they are "
            "added; it should be applied to their sum",
            lambda q, k, W, U, v: (
                ((q @ W.T).tanh()[:, :, None] + (k @ U.T).tanh()[:, None]) @ v
            ),
        ),
        Mistake(
            "tanh-too-late",
            "tanh of the score",
            "tanh is applied to the finished score; it should be applied to "
            "the sum, before the product with v",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, :, None] + (k @ U.T)[:, None]) @ v
            ).tanh(),
        ),
        Mistake(
            "no-query",
            "query not used",
            "the scores do not depend on the query",
            lambda q, k, W, U, v: ((k @ U.T).tanh() @ v)[:, None].expand(
                -1, q.shape[1], -1
            ),
        ),
        Mistake(
            "no-key",
            "key not used",
            "the scores do not depend on the key",
            lambda q, k, W, U, v: ((q @ W.T).tanh() @ v)[:, :, None].expand(
                -1, -1, k.shape[1]
            ),
        ),
        Mistake(
            "no-v",
            "no weights v",
            "the alignment axis is summed without the weights v",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, :, None] + (k @ U.T)[:, None]).tanh().sum(-1)
            ),
        ),
        Mistake(
            "product",
            "product instead of a sum",
            "the projected query and key are multiplied; they should be added",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, :, None] * (k @ U.T)[:, None]).tanh() @ v
            ),
        ),
        Mistake(
            "swapped-axes",
            "queries and keys swapped",
            "the axes of queries and keys are swapped; the scores should have "
            "the shape (B, T, S)",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, None] + (k @ U.T)[:, :, None]).tanh() @ v
            ),
        ),
        Mistake(
            "normalised",
            "weights instead of scores",
            "the softmax has already been applied: these are weights, and the "
            "exercise asks for scores",
            lambda *x: additive.additive_scores(*x).softmax(-1),
        ),
        Mistake(
            "scaled",
            "unneeded division by √A",
            "the scores are divided by √A; additive scores are not scaled",
            lambda *x: additive.additive_scores(*x) / x[-1].shape[0] ** 0.5,
        ),
    ),
)
