"""Exercise: a product for each sequence of a batch.

Chapter: chapters/00_before_you_start
Source: PyTorch's documentation of torch.matmul
Axes: B batch, T queries, S keys, D key width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.solutions.before_you_start import batched_product


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then every axis of another size; then all the same."""

    def inputs(b, t, s, d):
        return normal(rng, b, t, d), normal(rng, b, s, d)

    usual = inputs(2, 3, 5, 7)
    return (
        Case("with one query and one key", inputs(1, 1, 1, 3)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with as many queries as keys", inputs(2, 4, 4, 3)),
        Case("with B = T = S = D", inputs(3, 3, 3, 3)),
        Case("in double precision", doubled(usual)),
    )


check_batched_product = Exercise(
    title="every query with every key",
    stars=1,
    minutes=5,
    section="Batched products",
    solution=batched_product,
    returns=("scores",),
    draw=draw,
    mistakes=(
        Mistake(
            "reshaped",
            "the keys are reshaped, not transposed: the shape fits, and the "
            "numbers stand in the wrong places",
            lambda q, k: q @ k.reshape(len(k), k.shape[2], k.shape[1]),
        ),
        Mistake(
            "batch-transposed",
            "`.T` turns all the axes round, the batch too; `.mT` turns the "
            "last two",
            lambda q, k: q @ k.permute(2, 1, 0),
        ),
        Mistake(
            "not-transposed",
            "the keys are not transposed",
            lambda q, k: q @ k,
        ),
        Mistake(
            "elementwise",
            "queries and keys are multiplied entry by entry",
            lambda q, k: q * k,
        ),
        Mistake(
            "batch-summed",
            "the sequences of the batch are added up",
            lambda q, k: torch.einsum("btd,csd->ts", q, k).expand(
                len(q), -1, -1
            ),
        ),
        Mistake(
            "first-sequence",
            "all queries meet the keys of the first sequence",
            lambda q, k: q @ k[0].T,
        ),
        Mistake(
            "swapped-axes",
            "queries and keys have changed places: the result is (B, S, T)",
            lambda q, k: k @ q.mT,
        ),
        Mistake(
            "scaled",
            "it is divided by √D; that comes in a later chapter",
            lambda q, k: q @ k.mT / q.shape[-1] ** 0.5,
        ),
        Mistake(
            "mean",
            "it is the mean over D, not the sum",
            lambda q, k: q @ k.mT / q.shape[-1],
        ),
        Mistake(
            "normalised",
            "a softmax is taken; only the product is asked for",
            lambda q, k: (q @ k.mT).softmax(-1),
        ),
        Mistake(
            "cosine",
            "the vectors are brought to length 1 first",
            lambda q, k: torch.nn.functional.cosine_similarity(
                q[:, :, None], k[:, None], dim=-1
            ),
        ),
    ),
)
