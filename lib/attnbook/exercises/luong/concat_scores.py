"""Exercise: the concat score of every query and key.

Source: Luong et al. (2015), section 3.1, equation 8,
    https://arxiv.org/abs/1508.04025
Axes: B batch, T queries, S keys, Dq query width, Dk key width, A alignment
    width
"""

import torch
from torch import Tensor

from attnbook.attention import luong
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then T ≠ S and Dq ≠ Dk; then what hides a mistake."""

    def inputs(b, t, s, dq, dk, a):
        return (
            draw_normal(rng, b, t, dq),
            draw_normal(rng, b, s, dk),
            draw_normal(rng, a, dq + dk),
            draw_normal(rng, a),
        )

    usual = inputs(2, 3, 5, 7, 11, 13)
    _, _, W, v = inputs(3, 5, 2, 3, 7, 5)
    viewed = draw_normal(rng, 3, 3, 5).mT, draw_normal(rng, 3, 7, 2).mT, W, v
    return (
        Case("with one query and one key", inputs(1, 1, 1, 2, 5, 3)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with equal widths, and T = S", inputs(2, 4, 4, 3, 3, 5)),
        Case("with a square W", inputs(2, 4, 3, 3, 3, 6)),
        Case("with inputs that are transposed views", viewed),
        Case("with large inputs", tuple(8 * x for x in usual)),
        Case("in double precision", to_double(usual), asked=False),
        Case("in half precision", to_half(inputs(2, 3, 5, 2, 5, 3)), asked=False),
    )


def concatenate_pairs(query: Tensor, key: Tensor) -> Tensor:
    """Return [query; key] for every pair: (B, T, S, Dq + Dk)."""
    return torch.cat(
        [
            query[:, :, None].expand(-1, -1, key.shape[1], -1),
            key[:, None].expand(-1, query.shape[1], -1, -1),
        ],
        dim=-1,
    )


def apply_activation(bend):
    """Return concat scores with another function in tanh's place."""
    return lambda q, k, W, v: bend(concatenate_pairs(q, k) @ W.T) @ v


def compute_parts(query, key, W):
    """Return W₁ query and W₂ key, ready to be added."""
    W_query, W_key = W.split((query.shape[-1], key.shape[-1]), dim=1)
    return (query @ W_query.T)[:, :, None], (key @ W_key.T)[:, None]


def split_in_half(query, key, W, v):
    """Take the first half of W for the query, whatever its width."""
    W_query, W_key = W.chunk(2, dim=1)
    queries, keys = query @ W_query.T, key @ W_key.T
    return (queries[:, :, None] + keys[:, None]).tanh() @ v


check_concat_scores = Exercise(
    title="concat scores",
    stars=2,
    minutes=15,
    section="The concat score",
    solution=luong.concat_scores,
    returns=("scores",),
    draw=draw,
    mistakes=(
        Mistake(
            "key-first",
            "key concatenated first",
            "query and key are concatenated in the wrong order: the first "
            "columns of W belong to the query",
            lambda q, k, W, v: ((concatenate_pairs(k, q) @ W.T).tanh() @ v).mT,
        ),
        Mistake(
            "cut-in-half",
            "W split in the middle",
            "W is split in the middle; its first Dq columns belong to the "
            "query, the other Dk to the key",
            split_in_half,
        ),
        Mistake(
            "untransposed",
            "W not transposed",
            "W is applied as x @ W; it should be x @ W.T (with a square W, the "
            "shapes do not show the mistake)",
            lambda q, k, W, v: (concatenate_pairs(q, k) @ W).tanh() @ v,
        ),
        Mistake(
            "no-tanh",
            "no tanh",
            "tanh is not applied",
            apply_activation(lambda x: x),
        ),
        Mistake(
            "relu-for-tanh",
            "ReLU instead of tanh",
            "the activation is ReLU; it should be tanh",
            apply_activation(torch.relu),
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
            "tanh is applied to W₁ q and to W₂ k before they are added; it "
            "should be applied to their sum",
            lambda q, k, W, v: sum(x.tanh() for x in compute_parts(q, k, W)) @ v,
        ),
        Mistake(
            "tanh-of-inputs",
            "tanh of the inputs",
            "tanh is applied to the query and the key; it should be applied after W",
            lambda q, k, W, v: concatenate_pairs(q, k).tanh() @ W.T @ v,
        ),
        Mistake(
            "tanh-too-late",
            "tanh of the score",
            "tanh is applied to the finished score; it should be applied "
            "before the product with v",
            lambda q, k, W, v: (concatenate_pairs(q, k) @ W.T @ v).tanh(),
        ),
        Mistake(
            "no-v",
            "no weights v",
            "the alignment axis is summed without the weights v",
            lambda q, k, W, v: (concatenate_pairs(q, k) @ W.T).tanh().sum(-1),
        ),
        Mistake(
            "no-query",
            "query not used",
            "the scores do not depend on the query",
            lambda q, k, W, v: (compute_parts(q, k, W)[1].tanh() @ v).expand(
                -1, q.shape[1], -1
            ),
        ),
        Mistake(
            "no-key",
            "key not used",
            "the scores do not depend on the key",
            lambda q, k, W, v: (compute_parts(q, k, W)[0].tanh() @ v).expand(
                -1, -1, k.shape[1]
            ),
        ),
        Mistake(
            "product",
            "product instead of a sum",
            "W₁ q and W₂ k are multiplied; they should be added",
            lambda q, k, W, v: torch.mul(*compute_parts(q, k, W)).tanh() @ v,
        ),
        Mistake(
            "swapped-axes",
            "queries and keys swapped",
            "the axes of queries and keys are swapped; the scores should have "
            "the shape (B, T, S)",
            lambda q, k, W, v: ((concatenate_pairs(q, k) @ W.T).tanh() @ v).mT,
        ),
        Mistake(
            "normalised",
            "weights instead of scores",
            "the softmax has already been applied: these are weights, and the "
            "exercise asks for scores",
            lambda *x: luong.concat_scores(*x).softmax(-1),
        ),
        Mistake(
            "scaled",
            "unneeded division by √A",
            "the scores are divided by √A; concat scores are not scaled",
            lambda *x: luong.concat_scores(*x) / x[-1].shape[0] ** 0.5,
        ),
    ),
)
