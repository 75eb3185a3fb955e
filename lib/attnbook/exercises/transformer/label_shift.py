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

from attnbook.exercises.encoder_decoder.masked_loss import draw_padded
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import to_double


def next_symbol_loss(
    logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"], pad: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of each symbol, given those before it."""
    guesses, wanted = logits[:, :-1], ids[:, 1:]
    return F.cross_entropy(guesses.flatten(0, 1), wanted.flatten(), ignore_index=pad)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Two symbols; then padding, under several numbers; then large logits."""
    logits, ids, pad = draw_padded(rng, [3, 5, 2], 5, 7)
    return (
        Case("with two symbols", draw_padded(rng, [2], 2, 5)),
        Case("without padding", draw_padded(rng, [5, 5], 5, 7), gradient=True),
        Case("with padding", (logits, ids, pad), gradient=True),
        Case(
            "with 3 as the padding symbol",
            draw_padded(rng, [4, 2], 4, 11, pad=3),
            True,
        ),
        Case("with as many symbols as positions", draw_padded(rng, [5, 3], 5, 5)),
        Case("with large logits", (logits * 200, ids, pad)),
        Case("in double precision", to_double((logits, ids, pad)), asked=False),
    )


def average_each_sequence(logits, ids, pad):
    """Average each sequence first."""
    wanted = ids[:, 1:]
    keep = wanted != pad
    losses = F.cross_entropy(logits[:, :-1].mT, wanted, reduction="none")
    return ((losses * keep).sum(1) / keep.sum(1)).mean()


check_label_shift = Exercise(
    title="next-symbol loss",
    stars=2,
    minutes=15,
    section="The decoder-only Transformer: a language model",
    solution=next_symbol_loss,
    returns=("loss",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-shift",
            "labels not shifted",
            "the labels are not shifted: each position predicts its own "
            "symbol, which the model can copy from its input",
            "logits[:, :-1], ids[:, 1:] → logits, ids",
        ),
        Mistake(
            "backwards",
            "shifted in the wrong direction",
            "the labels are shifted in the wrong direction: each position "
            "predicts the symbol before it",
            "logits[:, :-1], ids[:, 1:] → logits[:, 1:], ids[:, :-1]",
        ),
        Mistake(
            "wraps-around",
            "shift wraps around",
            "the labels are rolled, so the last position predicts the first "
            "symbol of its own sequence",
            "logits[:, :-1], ids[:, 1:] → logits, ids.roll(-1, dims=1)",
        ),
        Mistake(
            "across-sequences",
            "shift across sequences",
            "the sequences are concatenated before the shift, so the last "
            "position of one predicts the first symbol of the next",
            "logits[:, :-1], ids[:, 1:] "
            "→ logits.flatten(0, 1)[None, :-1], ids.flatten()[None, 1:]",
        ),
        Mistake(
            "padding-counted",
            "padding counted",
            "the loss of padding positions is counted",
            ", ignore_index=pad → ",
        ),
        Mistake(
            "wrong-side-of-padding",
            "padding mask not shifted",
            "positions are left out if their own symbol is padding; they "
            "should be left out if their label is padding",
            (
                "ids[:, 1:] → ids[:, 1:].masked_fill(ids[:, :-1] == pad, -100)",
                "ignore_index=pad → ignore_index=-100",
            ),
        ),
        Mistake(
            "pad-is-zero",
            "padding symbol hard-coded",
            "the padding symbol is assumed to be 0, whatever `pad` is",
            "ignore_index=pad → ignore_index=0",
        ),
        Mistake(
            "softmax-twice",
            "softmax before cross-entropy",
            "a softmax is applied before the cross-entropy, which already applies one",
            "logits[ → logits.softmax(-1)[",
        ),
        Mistake(
            "log-for-nothing",
            "no log-softmax",
            "the logits are used as if they were log-probabilities; "
            "log_softmax is missing",
            "F.cross_entropy → F.nll_loss",
        ),
        Mistake(
            "mean-of-means",
            "mean of the sequences' means",
            "each sequence is averaged first, so that a symbol of a short "
            "sequence weighs more",
            average_each_sequence,
        ),
        Mistake(
            "sum",
            "sum instead of a mean",
            "it returns the sum of the losses; it should be the mean",
            "ignore_index=pad → ignore_index=pad, reduction='sum'",
        ),
        Mistake(
            "divided-by-all",
            "divided by all positions",
            "the sum leaves padding out, but it is divided by the number of "
            "all positions",
            (
                "ignore_index=pad → ignore_index=pad, reduction='sum'",
                "return F → return 1 / wanted.numel() * F",
            ),
        ),
        Mistake(
            "wrong-sign",
            "wrong sign",
            "the sign is wrong: a good model would have a high loss",
            "return F → return -F",
        ),
    ),
)
