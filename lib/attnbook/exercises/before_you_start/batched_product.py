"""Exercise: a product for each sequence of a batch.

Source: PyTorch's documentation of torch.matmul
Axes: B batch, T queries, S keys, D key width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def batched_product(
    query: Float[Tensor, "B T D"], key: Float[Tensor, "B S D"]
) -> Float[Tensor, "B T S"]:
    """Return the product of every query with every key of its sequence."""
    return query @ key.mT


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then every axis of another size; then all the same."""

    def inputs(b, t, s, d):
        return draw_normal(rng, b, t, d), draw_normal(rng, b, s, d)

    usual = inputs(2, 3, 5, 7)
    return (
        Case("with one query and one key", inputs(1, 1, 1, 3)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with as many queries as keys", inputs(2, 4, 4, 3)),
        Case("with B = T = S = D", inputs(3, 3, 3, 3)),
        Case("in double precision", to_double(usual), asked=False),
    )


check_batched_product = Exercise(
    title="batched product of queries and keys",
    stars=1,
    minutes=5,
    section="Batched products",
    solution=batched_product,
    returns=("products",),
    draw=draw,
    mistakes=(
        Mistake(
            "reshaped",
            "reshaped instead of transposed",
            "the keys are reshaped instead of transposed: the shape is right, "
            "but the entries are in the wrong order",
            lambda q, k: q @ k.reshape(len(k), k.shape[2], k.shape[1]),
        ),
        Mistake(
            "batch-transposed",
            "batch axis transposed",
            "`.T` reverses all axes, the batch axis included; `.mT` exchanges "
            "only the last two",
            lambda q, k: q @ k.permute(2, 1, 0),
        ),
        Mistake(
            "not-transposed",
            "keys not transposed",
            "the keys are not transposed",
            lambda q, k: q @ k,
        ),
        Mistake(
            "elementwise",
            "elementwise product",
            "queries and keys are multiplied elementwise; a matrix product is needed",
            lambda q, k: q * k,
        ),
        Mistake(
            "batch-summed",
            "summed over the batch",
            "the products are summed over the batch; each sequence should have its own",
            lambda q, k: torch.einsum("btd,csd->ts", q, k).expand(len(q), -1, -1),
        ),
        Mistake(
            "first-sequence",
            "keys of the first sequence",
            "all queries are multiplied by the keys of the first sequence",
            lambda q, k: q @ k[0].T,
        ),
        Mistake(
            "swapped-axes",
            "queries and keys swapped",
            "the axes of queries and keys are swapped; the result should have "
            "the shape (B, T, S)",
            lambda q, k: k @ q.mT,
        ),
        Mistake(
            "scaled",
            "unneeded division by √D",
            "the result is divided by √D; only the product is required",
            lambda q, k: q @ k.mT / q.shape[-1] ** 0.5,
        ),
        Mistake(
            "mean",
            "mean instead of a sum",
            "it returns the mean over D; a dot product is the sum",
            lambda q, k: q @ k.mT / q.shape[-1],
        ),
        Mistake(
            "normalised",
            "unneeded softmax",
            "a softmax is applied; only the product is required",
            lambda q, k: (q @ k.mT).softmax(-1),
        ),
        Mistake(
            "cosine",
            "cosine similarity",
            "the vectors are normalized to length 1 first; only the "
            "product is required",
            lambda q, k: torch.nn.functional.cosine_similarity(
                q[:, :, None], k[:, None], dim=-1
            ),
        ),
    ),
)
