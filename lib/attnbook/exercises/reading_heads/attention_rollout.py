"""Exercise: attention rollout.

Source: Abnar and Zuidema (2020), section 3, https://arxiv.org/abs/2005.00928
Axes: L layers, H heads, T positions
"""

import torch
from torch import Tensor

from attnbook.diagnose.rollout import attention_rollout
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One layer; several; then rows without keys, and what hides mistakes."""

    def make_weights(L: int, H: int, T: int, causal: bool = False) -> Tensor:
        scores = 2 * draw_normal(rng, L, H, T, T)
        if causal:
            future = torch.ones(T, T, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        return scores.softmax(-1)

    usual, empty = make_weights(3, 2, 5), make_weights(2, 3, 4)
    empty[:, :, 1] = 0.0  # a query without keys
    empty[0, 1:, 2] = 0.0  # and one of which only a head has keys
    return (
        Case("with one layer of one head", (make_weights(1, 1, 3),)),
        Case("with one layer of two heads", (make_weights(1, 2, 3),)),
        Case("with two layers", (make_weights(2, 1, 4),)),
        Case("with three layers of two heads", (usual,)),
        Case("with causal weights", (make_weights(4, 3, 6, True),)),
        Case("with a query without keys", (empty,)),
        Case("with all sizes equal", (make_weights(4, 4, 4),)),
        Case("with one position", (make_weights(3, 2, 1),)),
        Case("in double precision", to_double((usual,)), asked=False),
    )


HALF = "0.5 * layer + 0.5 * identity"

check_attention_rollout = Exercise(
    title="attention rollout",
    stars=1,
    minutes=10,
    section="Entropy, similarity and rollout: what do they miss?",
    solution=attention_rollout,
    returns=("rollout",),
    draw=draw,
    allowed="Everything in PyTorch is allowed; `attnbook.diagnose` has the "
    "answer in it.",
    mistakes=(
        Mistake(
            "first-layer-left",
            "layers multiplied in the wrong order",
            "the layers are multiplied in the wrong order: the last layer "
            "should be leftmost, because its outputs are averages of the "
            "outputs of the layer before",
            "mixed @ rollout → rollout @ mixed",
        ),
        Mistake(
            "no-identity",
            "residual connection left out",
            "the identity for the residual connection is missing",
            f"{HALF} → layer",
        ),
        Mistake(
            "not-renormalized",
            "rows not divided by their sums",
            "the rows are not divided by their sums. The rows of a query "
            "without keys then sum to a half",
            " / mixed.sum(dim=-1, keepdim=True) → ",
        ),
        Mistake(
            "columns-normalized",
            "columns divided by their sums",
            "the columns are divided by their sums; it should be the rows, "
            "which belong to the queries",
            "dim=-1 → dim=-2",
        ),
        Mistake(
            "identity-not-scaled",
            "whole identity added, rows not divided",
            "the whole identity is added and the rows are not divided by their "
            "sums, so that these double in each layer",
            (
                f"{HALF} → layer + identity",
                " / mixed.sum(dim=-1, keepdim=True) → ",
            ),
        ),
        Mistake(
            "heads-added",
            "heads added",
            "the heads are added; it should be their mean, which has as much "
            "weight as the identity",
            "mean(dim=1) → sum(dim=1)",
        ),
        Mistake(
            "largest-head",
            "maximum over the heads",
            "the maximum over the heads is taken; it should be their mean",
            "mean(dim=1) → amax(dim=1)",
        ),
        Mistake(
            "first-head",
            "first head only",
            "only the first head is used; it should be the mean of all heads",
            "weights.mean(dim=1) → weights[:, 0]",
        ),
        Mistake(
            "last-layer",
            "last layer only",
            "only the last layer is returned; the product of all layers is asked for",
            "mixed @ rollout → mixed",
        ),
        Mistake(
            "first-layer-missing",
            "first layer left out",
            "the first layer is missing in the product",
            "weights.mean(dim=1) → weights[1:].mean(dim=1)",
        ),
        Mistake(
            "averaged-layers",
            "layers averaged",
            "the layers are averaged; they should be multiplied, because each "
            "one works on the outputs of the layer before",
            "weights.mean(dim=1) → weights.mean(dim=(0, 1))[None]",
        ),
        Mistake(
            "elementwise",
            "elements multiplied",
            "the matrices are multiplied element by element; it should be the "
            "matrix product",
            "mixed @ rollout → mixed * rollout",
        ),
        Mistake(
            "transposed",
            "inputs in the rows",
            "rows and columns are swapped: row t should belong to output t",
            lambda weights: attention_rollout(weights).mT,
        ),
        Mistake(
            "identity-once",
            "residual connection of the product only",
            "the identity is added once, to the product of the layers; each "
            "layer has a residual connection of its own",
            (
                f"{HALF} → layer",
                "return rollout → return 0.5 * rollout + 0.5 * identity",
            ),
        ),
    ),
)
