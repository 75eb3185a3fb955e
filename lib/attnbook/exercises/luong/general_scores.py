"""Exercise: the general score, a product with a matrix in between.

Chapter: chapters/03_luong
Source: Luong et al. (2015), section 3.1, equation 8,
    https://arxiv.org/abs/1508.04025
Axes: B batch, T queries, S keys, Dq query width, Dk key width
"""

import torch

from attnbook import luong
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then T ≠ S and Dq ≠ Dk; then what hides a mistake."""

    def inputs(b, t, s, dq, dk):
        return normal(rng, b, t, dq), normal(rng, b, s, dk), normal(rng, dq, dk)

    usual = inputs(2, 3, 5, 7, 11)
    query, key, W = inputs(3, 5, 2, 3, 7)
    viewed = (normal(rng, 3, 3, 5).mT, normal(rng, 3, 7, 2).mT, W.T.clone().T)
    return (
        Case("with one query and one key", inputs(1, 1, 1, 2, 3)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with more queries than keys", (query, key, W)),
        Case(
            "with equal widths, and T = S",
            inputs(2, 4, 4, 4, 4),
            gradient=True,
        ),
        Case("with inputs that are transposed views", viewed),
        Case("with large inputs", tuple(40 * x for x in usual)),
        Case("in double precision", doubled(usual)),
        Case("in half precision", halved(inputs(2, 3, 5, 3, 2))),
    )


check_general_scores = Exercise(
    title="general scores",
    stars=1,
    minutes=10,
    section="A matrix in between",
    solution=luong.general_scores,
    returns=("scores",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-matrix",
            "W is not used: that is the score called dot, and it needs equal "
            "widths",
            lambda q, k, W: q @ k.mT,
        ),
        Mistake(
            "untransposed",
            "W stands on the wrong side: qᵀ W k is asked for and kᵀ W q is "
            "given, which fits only where W is square",
            lambda q, k, W: q @ W.T @ k.mT,
        ),
        Mistake(
            "swapped-axes",
            "queries and keys have changed places: the scores are (B, S, T)",
            lambda q, k, W: k @ (q @ W).mT,
        ),
        Mistake(
            "reshaped",
            "the keys are reshaped, not transposed: the shape fits, and the "
            "numbers stand in the wrong places",
            lambda q, k, W: (
                q @ W @ k.reshape(k.shape[0], k.shape[2], k.shape[1])
            ),
        ),
        Mistake(
            "first-sequence",
            "all queries meet the keys of the first sequence",
            lambda q, k, W: q @ W @ k[0].T,
        ),
        Mistake(
            "batch-summed",
            "the sequences of the batch are added up",
            lambda q, k, W: torch.einsum("btd,de,cse->ts", q, W, k).expand(
                q.shape[0], -1, -1
            ),
        ),
        Mistake(
            "no-query",
            "the scores do not depend on the query",
            lambda q, k, W: (
                (k @ W.T).sum(-1)[:, None].expand(-1, q.shape[1], -1)
            ),
        ),
        Mistake(
            "no-key",
            "the scores do not depend on the key",
            lambda q, k, W: (
                (q @ W).sum(-1)[..., None].expand(-1, -1, k.shape[1])
            ),
        ),
        Mistake(
            "tanh",
            "there is a tanh; it belongs to the score called concat",
            lambda q, k, W: (q @ W).tanh() @ k.mT,
        ),
        Mistake(
            "tanh-of-keys",
            "there is a tanh; it belongs to the score called concat",
            lambda q, k, W: q @ (k @ W.T).tanh().mT,
        ),
        Mistake(
            "normalised",
            "the softmax is already taken; these are weights, not scores",
            lambda q, k, W: (q @ W @ k.mT).softmax(-1),
        ),
        Mistake(
            "scaled",
            "the scores are divided by √Dq; a learned W finds its own scale, "
            "and Luong's scores have none",
            lambda q, k, W: q @ W @ k.mT / q.shape[-1] ** 0.5,
        ),
        Mistake(
            "scaled-by-key-width",
            "the scores are divided by √Dk; a learned W finds its own scale, "
            "and Luong's scores have none",
            lambda q, k, W: q @ W @ k.mT / k.shape[-1] ** 0.5,
        ),
        Mistake(
            "cosine",
            "the vectors are brought to length 1 first",
            lambda q, k, W: torch.nn.functional.cosine_similarity(
                (q @ W)[:, :, None], k[:, None], dim=-1
            ),
        ),
    ),
)
