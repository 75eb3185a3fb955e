"""Exercise: the general score, a product with a matrix in between.

Source: Luong et al. (2015), section 3.1, equation 8,
    https://arxiv.org/abs/1508.04025
Axes: B batch, T queries, S keys, Dq query width, Dk key width
"""

import torch

from attnbook.attention import luong
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then T ≠ S and Dq ≠ Dk; then what hides a mistake."""

    def inputs(b, t, s, dq, dk):
        return (
            draw_normal(rng, b, t, dq),
            draw_normal(rng, b, s, dk),
            draw_normal(rng, dq, dk),
        )

    usual = inputs(2, 3, 5, 7, 11)
    query, key, W = inputs(3, 5, 2, 3, 7)
    viewed = (
        draw_normal(rng, 3, 3, 5).mT,
        draw_normal(rng, 3, 7, 2).mT,
        W.T.clone().T,
    )
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
        Case("in double precision", to_double(usual), asked=False),
        Case("in half precision", to_half(inputs(2, 3, 5, 3, 2)), asked=False),
    )


check_general_scores = Exercise(
    title="general scores",
    stars=1,
    minutes=10,
    section="The general score",
    solution=luong.general_scores,
    returns=("scores",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-matrix",
            "dot score instead of general",
            "W is not used: this is the dot score, which needs equal widths",
            lambda q, k, W: q @ k.mT,
        ),
        Mistake(
            "untransposed",
            "W transposed",
            "W is transposed: this is kᵀ W q; it should be qᵀ W k (with a "
            "square W, the shapes do not show the mistake)",
            lambda q, k, W: q @ W.T @ k.mT,
        ),
        Mistake(
            "swapped-axes",
            "queries and keys swapped",
            "the axes of queries and keys are swapped; the scores should have "
            "the shape (B, T, S)",
            lambda q, k, W: k @ (q @ W).mT,
        ),
        Mistake(
            "reshaped",
            "reshaped instead of transposed",
            "the keys are reshaped instead of transposed: the shape is right, "
            "but the entries are in the wrong order",
            lambda q, k, W: q @ W @ k.reshape(k.shape[0], k.shape[2], k.shape[1]),
        ),
        Mistake(
            "first-sequence",
            "keys of the first sequence",
            "all queries are scored against the keys of the first sequence",
            lambda q, k, W: q @ W @ k[0].T,
        ),
        Mistake(
            "batch-summed",
            "summed over the batch",
            "the scores are summed over the batch; each sequence should have its own",
            lambda q, k, W: torch.einsum("btd,de,cse->ts", q, W, k).expand(
                q.shape[0], -1, -1
            ),
        ),
        Mistake(
            "no-query",
            "query not used",
            "the scores do not depend on the query",
            lambda q, k, W: (k @ W.T).sum(-1)[:, None].expand(-1, q.shape[1], -1),
        ),
        Mistake(
            "no-key",
            "key not used",
            "the scores do not depend on the key",
            lambda q, k, W: (q @ W).sum(-1)[..., None].expand(-1, -1, k.shape[1]),
        ),
        Mistake(
            "tanh",
            "unneeded tanh of the query",
            "tanh is applied to the projected query; only the concat score has a tanh",
            lambda q, k, W: (q @ W).tanh() @ k.mT,
        ),
        Mistake(
            "tanh-of-keys",
            "unneeded tanh of the keys",
            "tanh is applied to the projected keys; only the concat score has a tanh",
            lambda q, k, W: q @ (k @ W.T).tanh().mT,
        ),
        Mistake(
            "normalised",
            "weights instead of scores",
            "the softmax has already been applied: these are weights, and the "
            "exercise asks for scores",
            lambda q, k, W: (q @ W @ k.mT).softmax(-1),
        ),
        Mistake(
            "scaled",
            "unneeded division by √Dq",
            "the scores are divided by √Dq; Luong's scores are not scaled, "
            "because W can learn the scale",
            lambda q, k, W: q @ W @ k.mT / q.shape[-1] ** 0.5,
        ),
        Mistake(
            "scaled-by-key-width",
            "unneeded division by √Dk",
            "the scores are divided by √Dk; Luong's scores are not scaled, "
            "because W can learn the scale",
            lambda q, k, W: q @ W @ k.mT / k.shape[-1] ** 0.5,
        ),
        Mistake(
            "cosine",
            "cosine similarity",
            "the vectors are normalized to length 1 first; the score is the "
            "plain product",
            lambda q, k, W: torch.nn.functional.cosine_similarity(
                (q @ W)[:, :, None], k[:, None], dim=-1
            ),
        ),
    ),
)
