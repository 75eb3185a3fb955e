"""Exercise: layer normalisation.

Source: Ba et al. (2016), section 3, equation 4,
    https://arxiv.org/abs/1607.06450; the two mistakes people ask about since
    2018, https://github.com/harvardnlp/annotated-transformer/issues
Axes: B batch, T positions, C width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double
from attnbook.models.layer_norm import layer_norm


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One vector; several; then a large ε, equal entries, a far mean."""

    def inputs(*shape, eps=1e-5):
        gain, bias = (
            1 + draw_normal(rng, shape[-1]),
            draw_normal(rng, shape[-1]),
        )
        return draw_normal(rng, *shape), gain, bias, eps

    usual = inputs(2, 3, 7)
    x, gain, bias, eps = inputs(3, 2, 5)
    flat = torch.full((2, 3, 5), 3.0)
    return (
        Case("with one vector", inputs(5, eps=0.1)),
        Case("with 2 x 3 vectors", usual, gradient=True),
        Case("with vectors of two entries", inputs(3, 2)),
        Case("with ε = 0.5", inputs(2, 3, 5, eps=0.5), gradient=True),
        Case("with equal entries", (flat, gain, bias, eps)),
        Case("with a mean of 30,000", to_double((x + 30_000, gain, bias, eps))),
        Case("with a transposed view", (x.mT.clone().mT, gain, bias, eps)),
        Case("in double precision", to_double(usual), asked=False),
    )


check_layer_norm = Exercise(
    title="layer normalization",
    stars=1,
    minutes=10,
    section="Layer normalization",
    solution=layer_norm,
    returns=("y",),
    draw=draw,
    allowed="Everything is allowed but a ready-made layer norm.",
    forbidden=frozenset({"layer_norm", "native_layer_norm"}),
    mistakes=(
        Mistake(
            "unbiased-variance",
            "division by C - 1",
            "the variance is divided by C - 1, the default of `var` and "
            "`std`; LayerNorm divides by C",
            "centered.square().mean(dim=-1, keepdim=True) "
            "→ x.var(dim=-1, keepdim=True)",
        ),
        Mistake(
            "eps-outside",
            "ε outside the root",
            "ε is added to the standard deviation; it should be added to the "
            "variance, under the root",
            "* (variance + eps).rsqrt() → / (variance.sqrt() + eps)",
        ),
        Mistake(
            "unbiased-and-outside",
            "division by C - 1, ε outside the root",
            "the variance is divided by C - 1 and ε is added after the root, "
            "as in `x.std(-1) + eps`; LayerNorm divides by C and adds ε to "
            "the variance",
            (
                "centered.square().mean(dim=-1, keepdim=True) "
                "→ x.var(dim=-1, keepdim=True)",
                "* (variance + eps).rsqrt() → / (variance.sqrt() + eps)",
            ),
        ),
        Mistake(
            "no-eps",
            "ε not used",
            "ε is not used, so equal entries lead to a division by zero",
            "(variance + eps) → variance",
        ),
        Mistake(
            "variance-not-root",
            "division by the variance",
            "it divides by the variance; it should divide by its square root",
            "* (variance + eps).rsqrt() → / (variance + eps)",
        ),
        Mistake(
            "no-mean",
            "RMSNorm instead of LayerNorm",
            "the mean is not subtracted: this is RMSNorm",
            "x - x.mean(dim=-1, keepdim=True) → x",
        ),
        Mistake(
            "no-gain",
            "gain not used",
            "the gain is not used",
            " * gain → ",
        ),
        Mistake(
            "no-bias",
            "bias not used",
            "the bias is not used",
            " + bias → ",
        ),
        Mistake(
            "bias-first",
            "bias before the gain",
            "the bias is added before the multiplication by the gain, so it "
            "is scaled as well",
            "centered * (variance + eps).rsqrt() * gain + bias "
            "→ (centered * (variance + eps).rsqrt() + bias) * gain",
        ),
        Mistake(
            "whole-tensor",
            "statistics of the whole tensor",
            "one mean and one variance are computed for the whole tensor; "
            "each vector should have its own",
            (
                "x.mean(dim=-1, keepdim=True) → x.mean()",
                "centered.square().mean(dim=-1, keepdim=True) "
                "→ centered.square().mean()",
            ),
        ),
        Mistake(
            "wrong-axis",
            "statistics over the batch",
            "the mean and variance are taken over the first axis, as in batch "
            "norm; they should be taken over the entries of each vector",
            (
                "x.mean(dim=-1 → x.mean(dim=0",
                "square().mean(dim=-1 → square().mean(dim=0",
            ),
        ),
    ),
    remarks=(
        Mistake(
            "difference-of-squares",
            "variance as a difference of squares",
            "the mean of the squares minus the square of the mean loses "
            "digits where the mean is large; subtract the mean first",
            "centered.square().mean(dim=-1, keepdim=True) "
            "→ x.square().mean(-1, keepdim=True) "
            "- x.mean(-1, keepdim=True).square()",
        ),
    ),
)
