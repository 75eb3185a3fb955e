"""Exercise: the loss over the symbols that are real.

Source: Sutskever, Vinyals and Le (2014), section 3.2,
    https://arxiv.org/abs/1409.3215
Axes: B batch, T target symbols, V symbols
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, to_double


def masked_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], pad: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of the symbols that are real."""
    nll = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return nll[targets != pad].mean()


def draw_padded(rng, lengths, width, symbols, pad=0):
    """Return logits, symbols with padding after each length, and its number."""
    lengths = torch.tensor(lengths)
    ids = draw_integers(rng, 1, symbols - 1, len(lengths), width)
    ids[ids == pad] = 2
    padding = torch.arange(width) >= lengths[:, None]
    logits = draw_normal(rng, len(lengths), width, symbols)
    return logits, ids.masked_fill(padding, pad), pad


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One symbol; then padding, under several numbers; then large logits."""
    some = int(draw_integers(rng, 2, 4))
    logits, targets, pad = draw_padded(rng, [some, 5, 1], 5, 7)
    return (
        Case("with one symbol", draw_padded(rng, [1], 1, 3)),
        Case("without padding", draw_padded(rng, [5, 5], 5, 7), gradient=True),
        Case("with padding", (logits, targets, pad), gradient=True),
        Case(
            "with 3 as the padding symbol",
            draw_padded(rng, [4, 2], 4, 11, pad=3),
            True,
        ),
        Case("with as many symbols as positions", draw_padded(rng, [5, 2], 5, 5)),
        Case("with large logits", (logits * 200, targets, pad)),
        Case(
            "in double precision",
            to_double((logits, targets, pad)),
            asked=False,
        ),
    )


check_masked_loss = Exercise(
    title="mean loss without padding",
    stars=2,
    minutes=15,
    section="Cross-entropy, in nats",
    solution=masked_loss,
    returns=("loss",),
    draw=draw,
    mistakes=(
        Mistake(
            "padding-counted",
            "padding counted",
            "the loss of padding positions is counted",
            "[targets != pad] → ",
        ),
        Mistake(
            "divided-by-all",
            "divided by all positions",
            "the sum leaves padding out, but it is divided by the number of "
            "all positions",
            ".mean() → .sum() / targets.numel()",
        ),
        Mistake(
            "mean-of-means",
            "mean of the sequences' means",
            "each sequence is averaged first, so that a symbol of a short "
            "sequence weighs more",
            "nll[targets != pad].mean() "
            "→ ((nll * (targets != pad)).sum(1) "
            "/ (targets != pad).sum(1)).mean()",
        ),
        Mistake(
            "sum",
            "sum instead of a mean",
            "it returns the sum of the losses; it should be the mean",
            ".mean() → .sum()",
        ),
        Mistake(
            "per-sequence",
            "divided by the number of sequences",
            "the sum is divided by the number of sequences; it should be "
            "divided by the number of symbols",
            ".mean() → .sum() / len(targets)",
        ),
        Mistake(
            "pad-is-zero",
            "padding symbol hard-coded",
            "the padding symbol is assumed to be 0, whatever `pad` is",
            "!= pad → != 0",
        ),
        Mistake(
            "only-padding",
            "inverted mask",
            "the mask is inverted: only padding is counted",
            "!= pad → == pad",
        ),
        Mistake(
            "softmax-twice",
            "softmax before cross-entropy",
            "a softmax is applied before the cross-entropy, which already applies one",
            "logits.log_softmax → logits.softmax(-1).log_softmax",
        ),
        Mistake(
            "wrong-axis",
            "softmax over the positions",
            "the softmax runs over the positions; it should run over the symbols",
            "log_softmax(-1) → log_softmax(1)",
        ),
        Mistake(
            "no-softmax",
            "no log-softmax",
            "the logits are used as if they were log-probabilities; "
            "log_softmax is missing",
            ".log_softmax(-1) → ",
        ),
        Mistake(
            "wrong-sign",
            "wrong sign",
            "the sign is wrong: a good model would have a high loss",
            "-logits → logits",
        ),
        Mistake(
            "bits",
            "bits instead of nats",
            "the loss is in bits; it should be in nats, with natural logarithms",
            ".mean() → .mean() / 0.6931471805599453",
        ),
        Mistake(
            "probability",
            "no logarithm",
            "the probabilities are averaged without taking their logarithm",
            "log_softmax → softmax",
        ),
        Mistake(
            "unstable",
            "exponential overflows",
            "the exponentials overflow; log_softmax subtracts the largest logit first",
            ".log_softmax(-1) → .exp().div(logits.exp().sum(-1, keepdim=True)).log()",
        ),
        Mistake(
            "unstable-softmax",
            "logarithm of a zero probability",
            "a probability rounds to 0, and its logarithm is minus infinity; "
            "log_softmax avoids this",
            "log_softmax(-1) → softmax(-1).log()",
        ),
    ),
)
