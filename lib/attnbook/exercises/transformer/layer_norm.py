"""Exercise: layer normalisation.

Source: Ba et al. (2016), section 3, equation 4,
    https://arxiv.org/abs/1607.06450; the two mistakes people ask about since
    2018, https://github.com/harvardnlp/annotated-transformer/issues
Axes: B batch, T positions, C width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.models.layer_norm import layer_norm


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One vector; several; then a large ε, equal entries, a far mean."""

    def inputs(*shape, eps=1e-5):
        gain, bias = 1 + normal(rng, shape[-1]), normal(rng, shape[-1])
        return normal(rng, *shape), gain, bias, eps

    usual = inputs(2, 3, 7)
    x, gain, bias, eps = inputs(3, 2, 5)
    flat = torch.full((2, 3, 5), 3.0)
    return (
        Case("with one vector", inputs(5)),
        Case("with 2 x 3 vectors", usual, gradient=True),
        Case("with vectors of two entries", inputs(3, 2)),
        Case("with ε = 0.5", inputs(2, 3, 5, eps=0.5), gradient=True),
        Case("with equal entries", (flat, gain, bias, eps)),
        Case("with a mean of 30,000", doubled((x + 30_000, gain, bias, eps))),
        Case("with a transposed view", (x.mT.clone().mT, gain, bias, eps)),
        Case("in double precision", doubled(usual)),
    )


def normed(
    x,
    gain,
    bias,
    eps,
    *,
    dims=(-1,),
    ddof=0,
    centre=True,
    divide=lambda var, eps: (var + eps).sqrt(),
    end=lambda y, gain, bias: y * gain + bias,
):
    """Return layer norm with one thing in it changed."""
    mean = x.mean(dims, keepdim=True)
    variance = (x - mean).square().mean(dims, keepdim=True)
    count = torch.tensor([x.shape[d] for d in dims]).prod().item()
    variance = variance * count / max(count - ddof, 1)
    if not centre:
        mean, variance = 0, x.square().mean(dims, keepdim=True)
    return end((x - mean) / divide(variance, eps), gain, bias)


def wrong(**change):
    """Return an answer with that change."""
    return lambda x, gain, bias, eps: normed(x, gain, bias, eps, **change)


check_layer_norm = Exercise(
    title="layer normalization",
    stars=1,
    minutes=10,
    section="The norm",
    solution=layer_norm,
    returns=("x",),
    draw=draw,
    allowed="Everything is allowed but a ready-made layer norm.",
    forbidden=frozenset({"layer_norm", "native_layer_norm"}),
    mistakes=(
        Mistake(
            "unbiased-variance",
            "division by C - 1",
            "the variance is divided by C - 1, the default of `var` and "
            "`std`; LayerNorm divides by C",
            wrong(ddof=1),
        ),
        Mistake(
            "eps-outside",
            "ε outside the root",
            "ε is added to the standard deviation; it should be added to the "
            "variance, under the root",
            wrong(divide=lambda var, eps: var.sqrt() + eps),
        ),
        Mistake(
            "unbiased-and-outside",
            "division by C - 1, ε outside the root",
            "the variance is divided by C - 1 and ε is added after the root, "
            "as in `x.std(-1) + eps`; LayerNorm divides by C and adds ε to "
            "the variance",
            wrong(ddof=1, divide=lambda var, eps: var.sqrt() + eps),
        ),
        Mistake(
            "no-eps",
            "ε not used",
            "ε is not used, so equal entries lead to a division by zero",
            wrong(divide=lambda var, eps: var.sqrt()),
        ),
        Mistake(
            "variance-not-root",
            "division by the variance",
            "it divides by the variance; it should divide by its square root",
            wrong(divide=lambda var, eps: var + eps),
        ),
        Mistake(
            "no-mean",
            "RMSNorm instead of LayerNorm",
            "the mean is not subtracted: this is RMSNorm",
            wrong(centre=False),
        ),
        Mistake(
            "no-gain",
            "gain not used",
            "the gain is not used",
            wrong(end=lambda y, gain, bias: y + bias),
        ),
        Mistake(
            "no-bias",
            "bias not used",
            "the bias is not used",
            wrong(end=lambda y, gain, bias: y * gain),
        ),
        Mistake(
            "bias-first",
            "bias before the gain",
            "the bias is added before the multiplication by the gain, so it "
            "is scaled as well",
            wrong(end=lambda y, gain, bias: (y + bias) * gain),
        ),
        Mistake(
            "whole-tensor",
            "statistics of the whole tensor",
            "one mean and one variance are computed for the whole tensor; "
            "each vector should have its own",
            lambda x, gain, bias, eps: normed(
                x, gain, bias, eps, dims=tuple(range(x.ndim))
            ),
        ),
        Mistake(
            "wrong-axis",
            "statistics over the batch",
            "the mean and variance are taken over the first axis, as in batch "
            "norm; they should be taken over the entries of each vector",
            wrong(dims=(0,)),
        ),
    ),
)
