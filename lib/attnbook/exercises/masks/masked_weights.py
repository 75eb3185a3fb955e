"""Exercise: a softmax that keeps to a mask, whatever the scores are.

Chapter: chapters/07_masks
Source: none; zeros for an empty row are this book's convention
Axes: B batch, H heads, T queries, S keys
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import cast, doubled, halved, normal
from attnbook.exercises.masks.answers import added, emptied, filled, lowest
from attnbook.masked_softmax import masked_softmax

LOW = 3e38, 6e4  # scores go down to -LOW in single and in half precision


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One key; masks of every shape; an empty row; what hides a mistake."""

    def some(*shape):
        mask = normal(rng, *shape) > 0
        mask[..., 0], mask[..., 1] = True, False
        return mask

    def lone(height):
        """One key may be seen; its score is low, the others' are high."""
        only = torch.arange(5) == 2
        row = torch.where(only, -height, height).expand(2, 3, 7, 5)
        return row.clone(), only.expand(7, 5)

    usual, empty = normal(rng, 2, 3, 7, 5), some(2, 3, 7, 5)
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
        Case("with everything seen", (usual, torch.ones(7, 5) > 0)),
        Case("with empty rows", (usual, empty), gradient=True),
        Case(
            "with nothing seen", (usual, torch.zeros(7, 5) > 0), gradient=True
        ),
        Case("with the best key hidden", (loud, some(7, 5)), gradient=True),
        Case("with large scores", (usual + 200, empty), gradient=True),
        Case("with a very low score seen", (low, only)),
        Case("with a NaN that a query may see", (sick, open_row)),
        Case("in double precision", (*doubled((usual,)), empty)),
        Case("in half precision", (*halved((usual,)), empty)),
        Case("in bfloat16", (*cast((usual,), torch.bfloat16), empty)),
        Case("in half precision, low", (*halved(lone(LOW[1])[:1]), only)),
    )


check_masked_weights = Exercise(
    title="weights that keep to a mask",
    stars=2,
    minutes=10,
    section="Rows without a key",
    solution=masked_softmax,
    returns=("weights",),
    draw=draw,
    allowed="Everything is allowed but a ready-made attention; "
    "`attnbook.masked_softmax` has the answer in it.",
    mistakes=(
        Mistake(
            "unmasked",
            "the mask is not used",
            lambda scores, mask: scores.softmax(-1),
        ),
        Mistake(
            "inverted",
            "the mask is upside down: here True means that a query may look",
            lambda scores, mask: emptied(scores, ~mask),
        ),
        Mistake(
            "masked-after",
            "the mask comes after the softmax, and what is left no longer "
            "sums to 1",
            lambda scores, mask: scores.softmax(-1) * mask,
        ),
        Mistake(
            "renormalised",
            "the mask comes after the softmax; dividing by what is left does "
            "not bring back weights that a hidden key had pushed to 0",
            lambda scores, mask: renormalised(scores.softmax(-1) * mask),
        ),
        Mistake(
            "zero-score",
            "a hidden key gets the score 0, and 0 is a score like any other",
            lambda scores, mask: (scores * mask).softmax(-1),
        ),
        Mistake(
            "mask-added",
            "the mask is added as 1 and 0, which shifts scores and hides "
            "nothing",
            lambda scores, mask: (scores + mask).softmax(-1),
        ),
        Mistake(
            "sentinel",
            "a hidden key gets a large negative score; half precision does "
            "not have it, real scores may lie below it, and an empty row is "
            "not empty with it",
            filled(lambda dtype: -1e9),
        ),
        Mistake(
            "small-sentinel",
            "a hidden key gets the score -10000, which half precision has and "
            "real scores may undercut; an empty row is not empty with it",
            filled(lambda dtype: -1e4),
        ),
        Mistake(
            "empty-uniform",
            "a row without a key gets equal weights for all: the lowest "
            "number, the same everywhere, is a score like any other",
            filled(lowest),
        ),
        Mistake(
            "empty-nan",
            "a row without a key gets NaN, the softmax of nothing but minus "
            "infinity",
            filled(lambda dtype: -torch.inf),
        ),
        Mistake(
            "empty-nan-gradient",
            "the NaN of a row without a key is covered up afterwards, and its "
            "gradient is NaN still",
            lambda scores, mask: added(scores, mask, -torch.inf).masked_fill(
                ~mask, 0.0
            ),
        ),
        Mistake(
            "nan-swept",
            "every NaN becomes 0, also one that was in the scores and ought "
            "to be seen",
            lambda scores, mask: emptied(scores, mask).nan_to_num(),
        ),
        Mistake(
            "wrong-axis",
            "the softmax runs over the queries, not over the keys",
            lambda scores, mask: (
                emptied(scores.mT, mask.expand_as(scores).mT).mT
            ),
        ),
    ),
)


def renormalised(weights):
    """Divide by the sum, where there is one."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)
