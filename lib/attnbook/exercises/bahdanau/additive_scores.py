"""Exercise: the additive score of every query and key.

Chapter: chapters/02_bahdanau
Source: Bahdanau, Cho and Bengio (2015), section 3.1.1 and appendix
    A.1.2, https://arxiv.org/abs/1409.0473
Axes: B batch, T queries, S keys, Dq query width, Dk key width,
    A alignment width
"""

import torch

from attnbook import bahdanau
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal


def draw_scores(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then T ≠ S and Dq ≠ Dk; then what hides a mistake."""

    def inputs(b, t, s, dq, dk, a):
        return (
            normal(rng, b, t, dq),
            normal(rng, b, s, dk),
            normal(rng, a, dq),
            normal(rng, a, dk),
            normal(rng, a),
        )

    usual = inputs(2, 3, 5, 7, 11, 13)
    return (
        Case("with one query and one key", inputs(1, 1, 1, 2, 3, 5)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with as many queries as keys", inputs(2, 4, 4, 3, 3, 3)),
        Case(
            "with large inputs", tuple(x * 8 for x in inputs(2, 3, 5, 2, 3, 5))
        ),
        Case("in double precision", doubled(usual)),
    )


def bent(bend):
    """Return additive scores with another function in tanh's place."""

    def scores(query, key, W_query, W_key, v):
        queries, keys = query @ W_query.T, key @ W_key.T
        return bend(queries[:, :, None] + keys[:, None]) @ v

    return scores


check_additive_scores = Exercise(
    title="additive scores",
    stars=1,
    minutes=10,
    section="A score for every pair",
    solution=bahdanau.additive_scores,
    returns=("scores",),
    draw=draw_scores,
    mistakes=(
        Mistake("relu-for-tanh", "tanh became relu", bent(torch.relu)),
        Mistake("no-tanh", "there is no tanh", bent(lambda x: x)),
        Mistake(
            "sigmoid-for-tanh", "tanh became a sigmoid", bent(torch.sigmoid)
        ),
        Mistake(
            "tanh-too-early",
            "tanh bends queries and keys before they are added, not their sum",
            lambda q, k, W, U, v: (
                ((q @ W.T).tanh()[:, :, None] + (k @ U.T).tanh()[:, None]) @ v
            ),
        ),
        Mistake(
            "tanh-too-late",
            "tanh bends the finished score; it belongs inside, before v",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, :, None] + (k @ U.T)[:, None]) @ v
            ).tanh(),
        ),
        Mistake(
            "no-query",
            "the scores do not depend on the query",
            lambda q, k, W, U, v: ((k @ U.T).tanh() @ v)[:, None].expand(
                -1, q.shape[1], -1
            ),
        ),
        Mistake(
            "no-key",
            "the scores do not depend on the key",
            lambda q, k, W, U, v: ((q @ W.T).tanh() @ v)[:, :, None].expand(
                -1, -1, k.shape[1]
            ),
        ),
        Mistake(
            "no-v",
            "the alignment axis is summed without the weights v",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, :, None] + (k @ U.T)[:, None]).tanh().sum(-1)
            ),
        ),
        Mistake(
            "product",
            "query and key are multiplied, not added",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, :, None] * (k @ U.T)[:, None]).tanh() @ v
            ),
        ),
        Mistake(
            "swapped-axes",
            "queries and keys have changed places: the scores are (B, S, T)",
            lambda q, k, W, U, v: (
                ((q @ W.T)[:, None] + (k @ U.T)[:, :, None]).tanh() @ v
            ),
        ),
        Mistake(
            "normalised",
            "the softmax is already taken; these are weights, not scores",
            lambda *x: bahdanau.additive_scores(*x).softmax(-1),
        ),
        Mistake(
            "scaled",
            "the scores are divided by √A; only products need that",
            lambda *x: bahdanau.additive_scores(*x) / x[-1].shape[0] ** 0.5,
        ),
    ),
)
