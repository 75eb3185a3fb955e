"""Wrong implementations of attention, and what must expose them.

Each is stored with the families of cases (`test_reference.families`) in which
its error must be at least five times the budget, in every precision.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.scaled_dot_product import attend, attention_weights

ALL = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def make_from_weights(weigh):
    """Return attention by a function that makes weights from scores."""

    def call(query, key, value, mask=None, bias=None):
        scores = query * query.shape[-1] ** -0.5 @ key.mT
        seen = torch.ones_like(scores, dtype=torch.bool)
        seen = seen if mask is None else seen & mask
        return weigh(scores if bias is None else scores + bias, seen) @ value

    return call


def fill_masked(number):
    """Return a weighing whose masked-out scores are a finite number."""
    return make_from_weights(
        lambda scores, seen: scores.masked_fill(~seen, number).softmax(-1)
    )


def change_arguments(**change):
    """Return the reference with an argument changed, from all arguments."""

    def call(query, key, value, mask=None, bias=None):
        given = {"query": query, "key": key, "value": value}
        given |= {"mask": mask, "bias": bias}
        return attend(**given | {k: f(given) for k, f in change.items()})

    return call


def softmax_without_maximum(query, key, value, mask=None, bias=None):
    """Softmax without subtracting the maximum."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    raised = (scores if bias is None else scores + bias).exp()
    raised = raised if mask is None else raised * mask
    return raised / raised.sum(-1, keepdim=True) @ value


def online_softmax_without_correction(query, key, value, mask=None, bias=None):
    """An online softmax of two tiles that forgets to scale the first one."""
    half = (key.shape[-2] + 1) // 2
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    first = scores[..., :half].amax(-1, keepdim=True)
    both = scores.amax(-1, keepdim=True)
    tops = torch.cat([first.expand_as(scores[..., :half]),
                      both.expand_as(scores[..., half:])], -1)  # fmt: skip
    raised = (scores - tops.clamp(min=-1e4)).exp()
    total = raised.sum(-1, keepdim=True)
    return raised @ value / total.masked_fill(total == 0, 1.0)


class WrongGradient(torch.autograd.Function):
    """The reference forward, and a wrong formula backward."""

    @staticmethod
    def forward(ctx, query, key, value, mask, bias, formula):
        ctx.save_for_backward(query, key, value, mask, bias)
        ctx.formula = formula
        return attend(query, key, value, mask, bias)

    @staticmethod
    def backward(ctx, upstream):
        query, key, value, mask, bias = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        weights = attention_weights(query, key, mask, bias)
        dweights = upstream @ value.mT
        right = {
            "query": query,
            "key": key,
            "scale": (scale, scale),
            "weights": weights,
            "dscores": weights
            * (dweights - (weights * dweights).sum(-1, keepdim=True)),
            "upstream": upstream,
        }
        x = right | ctx.formula(weights, dweights, right)
        return (
            x["dscores"] @ x["key"] * x["scale"][0],
            x["dscores"].mT @ x["query"] * x["scale"][1],
            x["weights"].mT @ x["upstream"],
            None,
            None if bias is None else x["dscores"].sum(0, keepdim=True),
            None,
        )


def replace_backward(formula):
    """Return the reference with parts of its backward pass replaced.

    The formula gets the weights, their gradient and the right parts.
    """

    def call(query, key, value, mask=None, bias=None):
        return WrongGradient.apply(query, key, value, mask, bias, formula)

    return call


@dataclass(frozen=True)
class Wrong:
    """A wrong implementation, and the families of cases that must expose it."""

    run: Callable
    families: tuple = ("products",)
    dtypes: tuple = ALL


def align_top_left(given):
    """Causal as if the first query stood at the first key."""
    T, S = given["query"].shape[-2], given["key"].shape[-2]
    return torch.ones(T, S, dtype=torch.bool).tril()


def shift_mask(given):
    """A mask that is one key late."""
    return F.pad(given["mask"], (1, 0))[..., :-1]


def drop_last_key(given):
    """Every key but the last."""
    seen = torch.ones(given["key"].shape[-2], dtype=torch.bool)
    seen[-1] = False
    return seen if given["mask"] is None else seen & given["mask"]


SEEN = ("products", "masks", "biases")
WRONG = {
    "no scale": Wrong(lambda q, k, v, **more: attend(q, k, v, scale=1.0, **more), SEEN),
    "scaled by 1/D": Wrong(
        lambda q, k, v, **more: attend(q, k, v, scale=1 / q.shape[-1], **more),
        SEEN,
    ),
    "scaled after the softmax": Wrong(
        lambda q, k, v, **more: (
            attend(q, k, v, scale=1.0, **more) * q.shape[-1] ** -0.5
        ),
        SEEN,
    ),
    "softmax over the queries": Wrong(
        make_from_weights(lambda scores, seen: scores.softmax(-2) * seen), SEEN
    ),
    "weights not normalized": Wrong(
        make_from_weights(lambda scores, seen: scores.exp() * seen),
        (*SEEN, "one key"),
    ),
    "one key dropped": Wrong(change_arguments(mask=drop_last_key), (*SEEN, "one key")),
    "values in reverse order": Wrong(
        change_arguments(value=lambda x: x["value"].flip(-2)), SEEN
    ),
    "values transposed": Wrong(
        change_arguments(value=lambda x: x["value"].mT.reshape(x["value"].shape)),
        SEEN,
    ),
    "another head's keys": Wrong(
        change_arguments(key=lambda x: x["key"].roll(1, 1)), SEEN
    ),
    "online softmax without correction": Wrong(online_softmax_without_correction, SEEN),
    "mask ignored": Wrong(
        change_arguments(mask=lambda x: None), ("masks", "empty rows")
    ),
    "mask upside down": Wrong(change_arguments(mask=lambda x: ~x["mask"]), ("masks",)),
    "mask one key late": Wrong(change_arguments(mask=shift_mask), ("masks",)),
    "mask after the softmax": Wrong(
        make_from_weights(lambda scores, seen: scores.softmax(-1) * seen),
        ("masks",),
    ),
    "masked scores are 0": Wrong(fill_masked(0.0), ("masks",)),
    "padding's values are 0": Wrong(
        make_from_weights(lambda scores, seen: scores.softmax(-1) * seen),
        ("padding",),
    ),
    "padding attended": Wrong(change_arguments(mask=lambda x: None), ("padding",)),
    "causal from the top left": Wrong(
        change_arguments(mask=align_top_left), ("causal, not square",)
    ),
    "-1e4 instead of -inf": Wrong(fill_masked(-1e4), ("empty rows",)),
    "NaN for an empty row": Wrong(fill_masked(-torch.inf), ("empty rows",)),
    "bias ignored": Wrong(change_arguments(bias=lambda x: 0 * x["bias"]), ("biases",)),
    "bias subtracted": Wrong(change_arguments(bias=lambda x: -x["bias"]), ("biases",)),
    "bias before the scale": Wrong(
        change_arguments(bias=lambda x: x["bias"] * x["query"].shape[-1] ** -0.5),
        ("biases",),
    ),
    "bias instead of the mask": Wrong(
        change_arguments(mask=lambda x: None), ("biases and masks",)
    ),
    "bias over the wrong axis": Wrong(
        change_arguments(bias=lambda x: x["bias"].flip(-1)), ("biases",)
    ),
    "exponentials without the maximum": Wrong(
        softmax_without_maximum, ("large logits",), ALL[1:]
    ),
    "logits capped at 50": Wrong(
        make_from_weights(
            lambda scores, seen: masked_softmax(scores.clamp(-50, 50), seen)
        ),
        ("large logits",),
    ),
    "backward: no row sum": Wrong(
        replace_backward(
            lambda weights, dweights, right: {"dscores": weights * dweights}
        ),
        (*SEEN, "one key"),
    ),
    "backward: row mean instead of row sum": Wrong(
        replace_backward(
            lambda weights, dweights, right: {
                "dscores": weights * (dweights - dweights.mean(-1, keepdim=True))
            }
        ),
        SEEN,
    ),
    "backward: weights forgotten in the softmax": Wrong(
        replace_backward(
            lambda weights, dweights, right: {
                "dscores": dweights - (weights * dweights).sum(-1, keepdim=True)
            }
        ),
        SEEN,
    ),
    "backward: no scale for the queries": Wrong(
        replace_backward(
            lambda weights, dweights, right: {"scale": (1.0, right["scale"][1])}
        ),
        SEEN,
    ),
    "backward: no scale for the keys": Wrong(
        replace_backward(
            lambda weights, dweights, right: {"scale": (right["scale"][0], 1.0)}
        ),
        SEEN,
    ),
    "backward: no gradient for the queries": Wrong(
        replace_backward(
            lambda weights, dweights, right: {"scale": (0.0, right["scale"][1])}
        ),
        SEEN,
    ),
    "backward: no gradient for the keys": Wrong(
        replace_backward(
            lambda weights, dweights, right: {"scale": (right["scale"][0], 0.0)}
        ),
        SEEN,
    ),
    "backward: upstream is ones": Wrong(
        replace_backward(
            lambda weights, dweights, right: {
                "upstream": torch.ones_like(right["upstream"])
            }
        ),
        SEEN,
    ),
    "backward: mask ignored": Wrong(
        replace_backward(
            lambda weights, dweights, right: {
                "weights": attention_weights(right["query"], right["key"])
            }
        ),
        ("masks",),
    ),
}
