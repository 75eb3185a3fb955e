"""Exercise: softmax under a mask, for all kinds of scores.

Source: zeros for an empty row are this book's convention
Axes: B batch, H heads, T queries, S keys
"""

import torch

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.masked_softmax import masked_softmax as emptied
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import cast, draw_normal, to_double, to_half

LOW = 3e38, 6e4  # scores go down to -LOW in single and in half precision


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One key; masks of every shape; an empty row; what hides a mistake."""

    def some(*shape):
        mask = draw_normal(rng, *shape) > 0
        mask[..., 0], mask[..., 1] = True, False
        return mask

    def lone(height):
        """One key may be seen; its score is low, the others' are high."""
        only = torch.arange(5) == 2
        row = torch.where(only, -height, height).expand(2, 3, 7, 5)
        return row.clone(), only.expand(7, 5)

    usual, empty = draw_normal(rng, 2, 3, 7, 5), some(2, 3, 7, 5)
    empty[0, :, :3], empty[1, 0, 4] = False, False
    loud = usual.clone()
    loud[..., 1] += 300  # hidden in `some`
    sick, open_row = usual.clone(), empty.clone()
    sick[0, 1, 6, 3], open_row[0, 1, 6] = torch.nan, True
    low, only = lone(LOW[0])
    return (
        Case("with one key", (usual[..., :1], torch.ones(7, 1) > 0)),
        Case("with a mask", (usual, some(2, 3, 7, 5)), gradient=True),
        Case("with one mask for all sentences", (usual, some(7, 5))),
        Case("with one mask for all queries", (usual, some(2, 1, 1, 5))),
        Case("with nothing masked out", (usual, torch.ones(7, 5) > 0)),
        Case("with empty rows", (usual, empty), gradient=True),
        Case(
            "with everything masked out",
            (usual, torch.zeros(7, 5) > 0),
            gradient=True,
        ),
        Case(
            "with the highest score masked out",
            (loud, some(7, 5)),
            gradient=True,
        ),
        Case("with large scores", (usual + 200, empty), gradient=True),
        Case("with only a very low score not masked out", (low, only)),
        Case("with a NaN that is not masked out", (sick, open_row)),
        Case("in double precision", (*to_double((usual,)), empty), asked=False),
        Case("in half precision", (*to_half((usual,)), empty)),
        Case("in bfloat16", (*cast((usual,), torch.bfloat16), empty)),
        Case("in half precision, low", (*to_half(lone(LOW[1])[:1]), only)),
    )


def fill_masked(number):
    """Return weights whose hidden keys have a score that the dtype decides."""
    return lambda scores, mask: scores.masked_fill(~mask, number(scores.dtype)).softmax(
        -1
    )


def add_to_masked(scores, mask, number):
    """Return weights whose hidden keys have a number added to their scores."""
    bias = torch.zeros(mask.shape, dtype=scores.dtype)
    return (scores + bias.masked_fill(~mask, number)).softmax(-1)


def find_lowest_number(dtype):
    """Return the lowest number of a precision."""
    return torch.finfo(dtype).min


check_masked_weights = Exercise(
    title="masked attention weights",
    stars=2,
    minutes=10,
    section="Padded queries and queries without keys",
    solution=masked_softmax,
    returns=("weights",),
    draw=draw,
    without=frozenset({"axes", "long"}),
    allowed="Everything is allowed but a ready-made attention; "
    "`attnbook.attention.masked_softmax` has the answer in it.",
    mistakes=(
        Mistake(
            "unmasked",
            "mask not used",
            "the mask is not used",
            lambda scores, mask: scores.softmax(-1),
        ),
        Mistake(
            "inverted",
            "inverted mask",
            "the mask is inverted: True should mean that a query can attend to a key",
            lambda scores, mask: emptied(scores, ~mask),
        ),
        Mistake(
            "masked-after",
            "mask after the softmax",
            "the mask is applied after the softmax, so the remaining weights "
            "no longer sum to 1",
            lambda scores, mask: scores.softmax(-1) * mask,
        ),
        Mistake(
            "renormalised",
            "renormalized after masking",
            "the mask is applied after the softmax and the weights are "
            "renormalized; weights that underflowed because of a large masked "
            "score stay 0",
            lambda scores, mask: renormalize(scores.softmax(-1) * mask),
        ),
        Mistake(
            "zero-score",
            "masked scores set to 0",
            "masked scores are set to 0, but after the softmax, a score of 0 "
            "still has a positive weight; set them to minus infinity",
            lambda scores, mask: (scores * mask).softmax(-1),
        ),
        Mistake(
            "mask-added",
            "mask added to the scores",
            "the mask is added as 1 and 0, which shifts the scores and masks "
            "nothing out",
            lambda scores, mask: (scores + mask).softmax(-1),
        ),
        Mistake(
            "sentinel",
            "-1e9 instead of minus infinity",
            "masked scores are set to -1e9, which half precision cannot "
            "represent; real scores may be lower still, and an empty row gets "
            "weights",
            fill_masked(lambda dtype: -1e9),
        ),
        Mistake(
            "small-sentinel",
            "-1e4 instead of minus infinity",
            "masked scores are set to -10000; real scores may be lower still, "
            "and an empty row gets weights",
            fill_masked(lambda dtype: -1e4),
        ),
        Mistake(
            "empty-uniform",
            "uniform weights in an empty row",
            "an empty row gets uniform weights, because the lowest finite "
            "number is the same score for all keys; its weights should be 0",
            fill_masked(find_lowest_number),
        ),
        Mistake(
            "empty-nan",
            "NaN in an empty row",
            "an empty row gives NaN, because the softmax is applied to minus "
            "infinities only; its weights should be 0",
            fill_masked(lambda dtype: -torch.inf),
        ),
        Mistake(
            "empty-nan-gradient",
            "NaN gradient of an empty row",
            "the NaN of an empty row is replaced in the output, but its "
            "gradient is still NaN",
            lambda scores, mask: add_to_masked(scores, mask, -torch.inf).masked_fill(
                ~mask, 0.0
            ),
        ),
        Mistake(
            "nan-swept",
            "real NaN removed",
            "every NaN is replaced by 0, including a NaN in the scores, which "
            "should stay visible in the weights",
            lambda scores, mask: emptied(scores, mask).nan_to_num(),
        ),
        Mistake(
            "wrong-axis",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            lambda scores, mask: emptied(scores.mT, mask.expand_as(scores).mT).mT,
        ),
    ),
)


def renormalize(weights):
    """Divide by the sum, where there is one."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)
