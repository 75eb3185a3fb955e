"""Exercise: the concat score of every query and key.

Chapter: chapters/03_luong
Source: Luong et al. (2015), section 3.1, equation 8,
    https://arxiv.org/abs/1508.04025
Axes: B batch, T queries, S keys, Dq query width, Dk key width, A alignment
    width
"""

import torch
from torch import Tensor

from attnbook import luong
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then T ≠ S and Dq ≠ Dk; then what hides a mistake."""

    def inputs(b, t, s, dq, dk, a):
        return (
            normal(rng, b, t, dq),
            normal(rng, b, s, dk),
            normal(rng, a, dq + dk),
            normal(rng, a),
        )

    usual = inputs(2, 3, 5, 7, 11, 13)
    _, _, W, v = inputs(3, 5, 2, 3, 7, 5)
    viewed = normal(rng, 3, 3, 5).mT, normal(rng, 3, 7, 2).mT, W, v
    return (
        Case("with one query and one key", inputs(1, 1, 1, 2, 5, 3)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with equal widths, and T = S", inputs(2, 4, 4, 3, 3, 5)),
        Case("with a square W", inputs(2, 4, 3, 3, 3, 6)),
        Case("with inputs that are transposed views", viewed),
        Case("with large inputs", tuple(8 * x for x in usual)),
        Case("in double precision", doubled(usual)),
        Case("in half precision", halved(inputs(2, 3, 5, 2, 5, 3))),
    )


def pairs(query: Tensor, key: Tensor) -> Tensor:
    """Return [query; key] for every pair: (B, T, S, Dq + Dk)."""
    return torch.cat(
        [
            query[:, :, None].expand(-1, -1, key.shape[1], -1),
            key[:, None].expand(-1, query.shape[1], -1, -1),
        ],
        dim=-1,
    )


def bent(bend):
    """Return concat scores with another function in tanh's place."""
    return lambda q, k, W, v: bend(pairs(q, k) @ W.T) @ v


def parts(query, key, W):
    """Return W₁ query and W₂ key, ready to be added."""
    W_query, W_key = W.split((query.shape[-1], key.shape[-1]), dim=1)
    return (query @ W_query.T)[:, :, None], (key @ W_key.T)[:, None]


def cut_in_half(query, key, W, v):
    """Take the first half of W for the query, whatever its width."""
    W_query, W_key = W.chunk(2, dim=1)
    queries, keys = query @ W_query.T, key @ W_key.T
    return (queries[:, :, None] + keys[:, None]).tanh() @ v


check_concat_scores = Exercise(
    title="concat scores",
    stars=2,
    minutes=15,
    section="Concat is additive",
    solution=luong.concat_scores,
    returns=("scores",),
    draw=draw,
    mistakes=(
        Mistake(
            "key-first",
            "query and key are joined in the wrong order: the first columns "
            "of W belong to the query",
            lambda q, k, W, v: ((pairs(k, q) @ W.T).tanh() @ v).mT,
        ),
        Mistake(
            "cut-in-half",
            "W is cut in the middle; its first Dq columns belong to the "
            "query, the other Dk to the key",
            cut_in_half,
        ),
        Mistake(
            "untransposed",
            "W is applied as x @ W; x @ W.T is meant, which only a square "
            "matrix does not tell apart by shape",
            lambda q, k, W, v: (pairs(q, k) @ W).tanh() @ v,
        ),
        Mistake("no-tanh", "there is no tanh", bent(lambda x: x)),
        Mistake("relu-for-tanh", "tanh became relu", bent(torch.relu)),
        Mistake(
            "sigmoid-for-tanh", "tanh became a sigmoid", bent(torch.sigmoid)
        ),
        Mistake(
            "tanh-too-early",
            "tanh bends W₁ q and W₂ k before they are added, not their sum",
            lambda q, k, W, v: sum(x.tanh() for x in parts(q, k, W)) @ v,
        ),
        Mistake(
            "tanh-of-inputs",
            "tanh bends query and key; it belongs after W",
            lambda q, k, W, v: pairs(q, k).tanh() @ W.T @ v,
        ),
        Mistake(
            "tanh-too-late",
            "tanh bends the finished score; it belongs inside, before v",
            lambda q, k, W, v: (pairs(q, k) @ W.T @ v).tanh(),
        ),
        Mistake(
            "no-v",
            "the alignment axis is summed without the weights v",
            lambda q, k, W, v: (pairs(q, k) @ W.T).tanh().sum(-1),
        ),
        Mistake(
            "no-query",
            "the scores do not depend on the query",
            lambda q, k, W, v: (parts(q, k, W)[1].tanh() @ v).expand(
                -1, q.shape[1], -1
            ),
        ),
        Mistake(
            "no-key",
            "the scores do not depend on the key",
            lambda q, k, W, v: (parts(q, k, W)[0].tanh() @ v).expand(
                -1, -1, k.shape[1]
            ),
        ),
        Mistake(
            "product",
            "W₁ q and W₂ k are multiplied, not added",
            lambda q, k, W, v: torch.mul(*parts(q, k, W)).tanh() @ v,
        ),
        Mistake(
            "swapped-axes",
            "queries and keys have changed places: the scores are (B, S, T)",
            lambda q, k, W, v: ((pairs(q, k) @ W.T).tanh() @ v).mT,
        ),
        Mistake(
            "normalised",
            "the softmax is already taken; these are weights, not scores",
            lambda *x: luong.concat_scores(*x).softmax(-1),
        ),
        Mistake(
            "scaled",
            "the scores are divided by √A; only products need that",
            lambda *x: luong.concat_scores(*x) / x[-1].shape[0] ** 0.5,
        ),
    ),
)
