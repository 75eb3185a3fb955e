"""Exercise: the loss over the symbols that are real.

Source: Sutskever, Vinyals and Le (2014), section 3.2,
    https://arxiv.org/abs/1409.3215
Axes: B batch, T target symbols, V symbols
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal, whole


def masked_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], pad: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of the symbols that are real."""
    surprise = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return surprise[targets != pad].mean()


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One symbol; then padding, under several numbers; then large logits."""

    def inputs(lengths, width, symbols, pad=0):
        lengths = torch.tensor(lengths)
        targets = whole(rng, 1, symbols - 1, len(lengths), width)
        targets[targets == pad] = 2
        padding = torch.arange(width) >= lengths[:, None]
        logits = normal(rng, len(lengths), width, symbols)
        return logits, targets.masked_fill(padding, pad), pad

    some = int(whole(rng, 2, 4))
    logits, targets, pad = inputs([some, 5, 1], 5, 7)
    return (
        Case("with one symbol", inputs([1], 1, 3)),
        Case("without padding", inputs([5, 5], 5, 7), gradient=True),
        Case("with padding", (logits, targets, pad), gradient=True),
        Case("with padding numbered 3", inputs([4, 2], 4, 11, pad=3), True),
        Case("with as many symbols as positions", inputs([5, 2], 5, 5)),
        Case("with large logits", (logits * 200, targets, pad)),
        Case("in double precision", doubled((logits, targets, pad))),
    )


def surprise(logits, targets):
    """Return the cross-entropy of every place, in nats: (B, T)."""
    return F.cross_entropy(logits.mT, targets, reduction="none")


check_masked_loss = Exercise(
    title="mean loss without padding",
    stars=2,
    minutes=15,
    section="Train it",
    solution=masked_loss,
    returns=("loss",),
    draw=draw,
    mistakes=(
        Mistake(
            "padding-counted",
            "padding counted",
            "the loss of padding positions is counted",
            lambda logits, y, pad: surprise(logits, y).mean(),
        ),
        Mistake(
            "divided-by-all",
            "divided by all positions",
            "the sum leaves padding out, but it is divided by the number of "
            "all positions",
            lambda logits, y, pad: (
                (surprise(logits, y) * (y != pad)).sum() / y.numel()
            ),
        ),
        Mistake(
            "mean-of-means",
            "mean of the sequences' means",
            "each sequence is averaged first, so that a symbol of a short "
            "sequence weighs more",
            lambda logits, y, pad: (
                (surprise(logits, y) * (y != pad)).sum(1) / (y != pad).sum(1)
            ).mean(),
        ),
        Mistake(
            "sum",
            "sum instead of a mean",
            "it returns the sum of the losses; it should be the mean",
            lambda logits, y, pad: surprise(logits, y)[y != pad].sum(),
        ),
        Mistake(
            "per-sequence",
            "divided by the number of sequences",
            "the sum is divided by the number of sequences; it should be "
            "divided by the number of symbols",
            lambda logits, y, pad: surprise(logits, y)[y != pad].sum() / len(y),
        ),
        Mistake(
            "pad-is-zero",
            "padding symbol hard-coded",
            "the padding symbol is assumed to be 0, whatever `pad` is",
            lambda logits, y, pad: surprise(logits, y)[y != 0].mean(),
        ),
        Mistake(
            "only-padding",
            "inverted mask",
            "the mask is inverted: only padding is counted",
            lambda logits, y, pad: surprise(logits, y)[y == pad].mean(),
        ),
        Mistake(
            "softmax-twice",
            "softmax before cross-entropy",
            "a softmax is applied before the cross-entropy, which already "
            "applies one",
            lambda logits, y, pad: surprise(logits.softmax(-1), y)[
                y != pad
            ].mean(),
        ),
        Mistake(
            "wrong-axis",
            "softmax over the positions",
            "the softmax runs over the positions; it should run over the "
            "symbols",
            lambda logits, y, pad: (
                -(logits.log_softmax(1).gather(-1, y[..., None])[..., 0])[
                    y != pad
                ].mean()
            ),
        ),
        Mistake(
            "no-softmax",
            "no log-softmax",
            "the logits are used as if they were log-probabilities; "
            "log_softmax is missing",
            lambda logits, y, pad: (
                -(logits.gather(-1, y[..., None])[..., 0][y != pad].mean())
            ),
        ),
        Mistake(
            "wrong-sign",
            "wrong sign",
            "the sign is wrong: a good model would have a high loss",
            lambda logits, y, pad: -surprise(logits, y)[y != pad].mean(),
        ),
        Mistake(
            "bits",
            "bits instead of nats",
            "the loss is in bits; it should be in nats, with natural "
            "logarithms",
            lambda logits, y, pad: (
                surprise(logits, y)[y != pad].mean()
                / torch.tensor(2.0, dtype=logits.dtype).log()
            ),
        ),
        Mistake(
            "probability",
            "no logarithm",
            "the probabilities are averaged without taking their logarithm",
            lambda logits, y, pad: (
                -(-surprise(logits, y)).exp()[y != pad].mean()
            ),
        ),
        Mistake(
            "unstable",
            "exponential overflows",
            "the exponentials overflow; log_softmax subtracts the largest "
            "logit first",
            lambda logits, y, pad: (
                -(
                    (logits.exp() / logits.exp().sum(-1, keepdim=True))
                    .log()
                    .gather(-1, y[..., None])[..., 0][y != pad]
                    .mean()
                )
            ),
        ),
        Mistake(
            "unstable-softmax",
            "logarithm of a zero probability",
            "a probability rounds to 0, and its logarithm is minus infinity; "
            "log_softmax avoids this",
            lambda logits, y, pad: (
                -(
                    logits.softmax(-1)
                    .log()
                    .gather(-1, y[..., None])[..., 0][y != pad]
                    .mean()
                )
            ),
        ),
    ),
)
