"""Exercise: the loss of a language model, with its labels one step ahead.

Source: Radford et al. (2018), section 3.1, equation 1; the off-by-one that
    reports a perfect accuracy is asked about in many threads (chapter's
    Pitfalls)
Axes: B batch, T symbols, V symbols known
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.exercises.encoder_decoder.masked_loss import padded
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled


def next_symbol_loss(
    logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"], pad: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of each symbol, given those before it."""
    guesses, wanted = logits[:, :-1], ids[:, 1:]
    return F.cross_entropy(
        guesses.flatten(0, 1), wanted.flatten(), ignore_index=pad
    )


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Two symbols; then padding, under several numbers; then large logits."""
    logits, ids, pad = padded(rng, [3, 5, 2], 5, 7)
    return (
        Case("with two symbols", padded(rng, [2], 2, 5)),
        Case("without padding", padded(rng, [5, 5], 5, 7), gradient=True),
        Case("with padding", (logits, ids, pad), gradient=True),
        Case(
            "with padding numbered 3", padded(rng, [4, 2], 4, 11, pad=3), True
        ),
        Case("with as many symbols as positions", padded(rng, [5, 3], 5, 5)),
        Case("with large logits", (logits * 200, ids, pad)),
        Case("in double precision", doubled((logits, ids, pad))),
    )


def mean(guesses, wanted, keep, of=F.cross_entropy):
    """Return the mean loss of the positions to keep."""
    return of(guesses.mT, wanted, reduction="none")[keep].mean()


def flat(logits, ids, pad):
    """Shift after the sequences have been laid end to end."""
    guesses, wanted = logits.flatten(0, 1)[:-1], ids.flatten()[1:]
    return F.cross_entropy(guesses, wanted, ignore_index=pad)


def rolled(logits, ids, pad):
    """Let the last position predict the first symbol of its own sequence."""
    wanted = ids.roll(-1, dims=1)
    return mean(logits, wanted, wanted != pad)


def by_text(logits, ids, pad):
    """Average each sequence first."""
    wanted = ids[:, 1:]
    keep = wanted != pad
    losses = F.cross_entropy(logits[:, :-1].mT, wanted, reduction="none")
    return ((losses * keep).sum(1) / keep.sum(1)).mean()


def total(logits, ids, pad, divide=lambda keep: 1):
    """Return the sum, divided by something else than the symbols counted."""
    wanted = ids[:, 1:]
    keep = wanted != pad
    losses = F.cross_entropy(logits[:, :-1].mT, wanted, reduction="none")
    return (losses * keep).sum() / divide(keep)


check_label_shift = Exercise(
    title="next-symbol loss",
    stars=2,
    minutes=15,
    section="A decoder alone",
    solution=next_symbol_loss,
    returns=("loss",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-shift",
            "labels not shifted",
            "the labels are not shifted: each position predicts its own "
            "symbol, which the model can copy from its input",
            lambda z, ids, pad: mean(z, ids, ids != pad),
        ),
        Mistake(
            "backwards",
            "shifted in the wrong direction",
            "the labels are shifted in the wrong direction: each position "
            "predicts the symbol before it",
            lambda z, ids, pad: mean(z[:, 1:], ids[:, :-1], ids[:, :-1] != pad),
        ),
        Mistake(
            "wraps-around",
            "shift wraps around",
            "the labels are rolled, so the last position predicts the first "
            "symbol of its own sequence",
            rolled,
        ),
        Mistake(
            "across-texts",
            "shift across sequences",
            "the sequences are concatenated before the shift, so the last "
            "position of one predicts the first symbol of the next",
            flat,
        ),
        Mistake(
            "padding-counted",
            "padding counted",
            "the loss of padding positions is counted",
            lambda z, ids, pad: mean(
                z[:, :-1], ids[:, 1:], torch.ones_like(ids[:, 1:]).bool()
            ),
        ),
        Mistake(
            "wrong-side-of-padding",
            "padding mask not shifted",
            "positions are left out if their own symbol is padding; they "
            "should be left out if their label is padding",
            lambda z, ids, pad: mean(z[:, :-1], ids[:, 1:], ids[:, :-1] != pad),
        ),
        Mistake(
            "pad-is-zero",
            "padding symbol hard-coded",
            "the padding symbol is assumed to be 0, whatever `pad` is",
            lambda z, ids, pad: mean(z[:, :-1], ids[:, 1:], ids[:, 1:] != 0),
        ),
        Mistake(
            "softmax-twice",
            "softmax before cross-entropy",
            "a softmax is applied before the cross-entropy, which already "
            "applies one",
            lambda z, ids, pad: mean(
                z.softmax(-1)[:, :-1], ids[:, 1:], ids[:, 1:] != pad
            ),
        ),
        Mistake(
            "log-for-nothing",
            "no log-softmax",
            "the logits are used as if they were log-probabilities; "
            "log_softmax is missing",
            lambda z, ids, pad: mean(
                z[:, :-1], ids[:, 1:], ids[:, 1:] != pad, of=F.nll_loss
            ),
        ),
        Mistake(
            "mean-of-means",
            "mean of the sequences' means",
            "each sequence is averaged first, so that a symbol of a short "
            "sequence weighs more",
            by_text,
        ),
        Mistake(
            "sum",
            "sum instead of a mean",
            "it returns the sum of the losses; it should be the mean",
            total,
        ),
        Mistake(
            "divided-by-all",
            "divided by all positions",
            "the sum leaves padding out, but it is divided by the number of "
            "all positions",
            lambda z, ids, pad: total(z, ids, pad, lambda keep: keep.numel()),
        ),
        Mistake(
            "wrong-sign",
            "wrong sign",
            "the sign is wrong: a good model would have a high loss",
            lambda z, ids, pad: -next_symbol_loss(z, ids, pad),
        ),
    ),
)
