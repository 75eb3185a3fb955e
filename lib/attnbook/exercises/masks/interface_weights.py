"""Exercise: predict what an interface does with a mask of ones and zeros.

Source: PyTorch's pages on `scaled_dot_product_attention` and
    `MultiheadAttention`, https://docs.pytorch.org/docs/stable/; the chapter
    tries both
Axes: S keys
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal

WAYS = (
    "SDPA, boolean",
    "SDPA, float",
    "module, boolean",
    "module, float",
    "-1e4",
    "after",
)


def interface_weights(
    scores: Float[Tensor, " S"], mask: Float[Tensor, " S"], how: str
) -> Float[Tensor, " S"]:
    """Return the weights that are used if a mask is passed in one of six ways.

    Args:
        scores: of one query.
        mask: ones and zeros, as floating-point numbers.
        how: one of WAYS, such as "SDPA, float".
    """
    if how in ("SDPA, float", "module, float"):
        return (scores + mask).softmax(-1)
    if how == "-1e4":
        return scores.masked_fill(~mask.bool(), -1e4).softmax(-1)
    if how == "after":
        return scores.softmax(-1) * mask
    can_attend = mask.bool() if how == "SDPA, boolean" else ~mask.bool()
    return masked_softmax(scores[None], can_attend)[0]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Equal scores; other scores; then no key, and every key."""

    def some(count: int) -> Tensor:
        mask = (draw_normal(rng, count) > 0).float()
        mask[0], mask[1] = 1.0, 0.0
        return mask[torch.randperm(count, generator=rng)]

    cases = []
    for how in WAYS:
        inputs = torch.zeros(4), torch.tensor([1.0, 1.0, 0.0, 0.0]), how
        cases.append(Case(f"for “{how}” and equal scores", inputs))
    for how in WAYS:
        for name, mask in (
            ("ones and zeros", some(7)),
            ("zeros only", torch.zeros(5)),
            ("ones only", torch.ones(3)),
        ):
            inputs = draw_normal(rng, len(mask)), mask, how
            cases.append(Case(f"for “{how}” and a mask of {name}", inputs))
    return tuple(cases)


def change_empty_rows(otherwise):
    """Return an answer that treats a row without keys in another way.

    Args:
        otherwise: from scores to the weights of such a row.
    """

    def answer(scores, mask, how):
        used = {"SDPA, boolean": mask, "module, boolean": 1 - mask}.get(how)
        if used is not None and not used.any():
            return otherwise(scores)
        return interface_weights(scores, mask, how)

    return answer


def replace_interface(how: str, weights):
    """Return an answer that takes one of the six ways for another.

    Args:
        how: the way.
        weights: from scores and mask to weights.
    """

    def answer(scores, mask, given):
        if given == how:
            return weights(scores, mask)
        return interface_weights(scores, mask, given)

    return answer


def renormalize_after_softmax(scores, mask):
    """Return weights that are masked after the softmax and divided."""
    weights = scores.softmax(-1) * mask
    total = weights.sum()
    return weights / total if total > 0 else weights


check_interface_weights = Exercise(
    title="the weights that an interface uses",
    stars=2,
    minutes=20,
    section="Mask conventions and PyTorch",
    solution=interface_weights,
    returns=("weights",),
    draw=draw,
    allowed="Everything is allowed but a ready-made attention.",
    mistakes=(
        Mistake(
            "module-keeps",
            "True means can attend in the module",
            "it takes True for “can attend” in `nn.MultiheadAttention`; there, "
            "True means “masked out”",
            replace_interface(
                "module, boolean",
                lambda scores, mask: masked_softmax(scores[None], mask == 1)[0],
            ),
        ),
        Mistake(
            "sdpa-drops",
            "True means masked out in SDPA",
            "it takes True for “masked out” in SDPA; there, True means “can attend”",
            replace_interface(
                "SDPA, boolean",
                lambda scores, mask: masked_softmax(scores[None], mask == 0)[0],
            ),
        ),
        Mistake(
            "floats-mask-out",
            "SDPA's float mask taken for a boolean one",
            "it masks keys out where a float mask of SDPA is 0; a float mask "
            "is added to the scores and masks nothing out",
            replace_interface(
                "SDPA, float",
                lambda scores, mask: masked_softmax(scores[None], mask == 1)[0],
            ),
        ),
        Mistake(
            "module-floats-mask-out",
            "the module's float mask taken for a boolean one",
            "it masks keys out where a float mask of `nn.MultiheadAttention` "
            "is 1; a float mask is added to the scores and masks nothing out",
            replace_interface(
                "module, float",
                lambda scores, mask: masked_softmax(scores[None], mask == 0)[0],
            ),
        ),
        Mistake(
            "floats-multiplied",
            "float mask multiplied",
            "it multiplies the scores by a float mask; the mask is added",
            "scores + mask → scores * mask",
        ),
        Mistake(
            "floats-ignored",
            "float mask ignored",
            "it ignores a float mask; the mask is added, so keys with 1 get "
            "more weight",
            "(scores + mask) → scores",
        ),
        Mistake(
            "floats-subtracted",
            "float mask subtracted",
            "it subtracts a float mask, as if 1 meant “masked out”; the mask is added",
            "scores + mask → scores - mask",
        ),
        Mistake(
            "empty-nan",
            "NaN in an empty row",
            "it gives NaN if no key can be attended to; these interfaces give zeros",
            change_empty_rows(lambda scores: scores * torch.nan),
        ),
        Mistake(
            "empty-uniform",
            "uniform weights in an empty row",
            "it gives uniform weights if no key can be attended to; these "
            "interfaces give zeros",
            change_empty_rows(lambda scores: (scores * 0).softmax(-1)),
        ),
        Mistake(
            "sentinel-zeros",
            "zeros with -1e4",
            "it gives zeros where all scores are replaced by -1e4; equal "
            "scores have equal weights",
            replace_interface(
                "-1e4",
                lambda scores, mask: masked_softmax(scores[None], mask == 1)[0],
            ),
        ),
        Mistake(
            "sentinel-added",
            "-1e4 added",
            "it adds -1e4 to the scores; the scores are replaced by it, and "
            "their differences are lost",
            replace_interface(
                "-1e4",
                lambda scores, mask: (
                    (scores.double() - 1e4 * (1 - mask)).softmax(-1).float()
                ),
            ),
        ),
        Mistake(
            "after-renormalized",
            "sum of 1 after masking late",
            "it makes the weights sum to 1 after masking them; masking after "
            "the softmax leaves a smaller sum",
            replace_interface("after", renormalize_after_softmax),
        ),
        Mistake(
            "after-as-before",
            "masked before the softmax",
            "it masks before the softmax; here the mask is applied after it",
            replace_interface(
                "after",
                lambda scores, mask: scores.masked_fill(mask == 0, -torch.inf).softmax(
                    -1
                ),
            ),
        ),
    ),
)
