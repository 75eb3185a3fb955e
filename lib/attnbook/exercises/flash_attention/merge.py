"""Exercise: attention to all keys, from attention to two parts of them.

Source: Dao et al. (2022), section 3.1, https://arxiv.org/abs/2205.14135, for
    two parts with their logsumexp
Axes: T queries, E value width; leading axes stay
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, to_double


def merge(
    output_a: Float[Tensor, "*B T E"],
    lse_a: Float[Tensor, "*B T"],
    output_b: Float[Tensor, "*B T E"],
    lse_b: Float[Tensor, "*B T"],
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention to the keys of both parts, from attention to each."""
    lse = torch.logaddexp(lse_a, lse_b)
    # Where both are empty, -inf - -inf would be NaN.
    shift = lse.masked_fill(lse == -torch.inf, 0.0)
    share_a, share_b = ((x - shift).exp()[..., None] for x in (lse_a, lse_b))
    return share_a * output_a + share_b * output_b, lse


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Equal parts; unequal ones; then far ones; then empty ones."""

    def parts(*lead, t=3, e=5, size=1.5):
        def one():
            return draw_normal(rng, *lead, t, e), size * draw_normal(rng, *lead, t)

        return *one(), *one()

    def emptied(given, which):
        found = [x.clone() for x in given]
        for part in which:
            found[2 * part][1] = 0.0
            found[2 * part + 1][1] = -torch.inf
        return tuple(found)

    even = list(parts(t=1, e=2))
    even[3] = even[1].clone()
    usual = parts()
    high, low = (
        tuple(
            x + sign * (120 + draw_integers(rng, 0, 2, 3)) if i % 2 else x
            for i, x in enumerate(parts())
        )
        for sign in (1, -1)
    )
    far = list(parts())
    far[1] = far[1] + torch.tensor([200.0, 0.0, -200.0])
    return (
        Case("with two parts of the same weight", tuple(even)),
        Case("with one query", parts(t=1)),
        Case("with 3 queries", usual),
        Case("with as many queries as values are wide", parts(t=4, e=4)),
        Case("with a batch of 2 and 3 heads", parts(2, 3, t=5, e=7)),
        Case("with a logsumexp near 120", high),
        Case("with a logsumexp near -120", low),
        Case("with parts of very different weight", tuple(far)),
        Case("with an empty first part", emptied(usual, [0])),
        Case("with an empty second part", emptied(parts(), [1])),
        Case("with two empty parts", emptied(parts(), [0, 1])),
        Case("in double precision", to_double(parts(2)), asked=False),
    )


def merge_without_shift(output_a, lse_a, output_b, lse_b):
    """Take exp of the logsumexps as they are."""
    a, b = lse_a.exp()[..., None], lse_b.exp()[..., None]
    total = a + b
    safe = total.masked_fill(total == 0, 1.0)
    return (a * output_a + b * output_b) / safe, total.log()[..., 0]


def merge_by_maximum(divide=True, guard=True, log=True):
    """Return an answer that shifts by the larger logsumexp."""

    def answer(output_a, lse_a, output_b, lse_b):
        top = torch.maximum(lse_a, lse_b)
        low = top.masked_fill(top == -torch.inf, 0.0) if guard else top
        a, b = (lse_a - low).exp(), (lse_b - low).exp()
        mixed = a[..., None] * output_a + b[..., None] * output_b
        total = a + b
        safe = total.masked_fill(total == 0, 1.0) if guard else total
        if divide:
            mixed = mixed / safe[..., None]
        return mixed, (low + total.log()) if log else total.log()

    return answer


def replace_nan(output_a, lse_a, output_b, lse_b):
    """Cover up NaN afterwards, and -inf with it."""
    output, lse = merge_by_maximum(guard=False)(output_a, lse_a, output_b, lse_b)
    return output.nan_to_num(), lse.nan_to_num()


check_merge = Exercise(
    title="merge two partial results",
    stars=2,
    minutes=10,
    section="Merging two parts: output and logsumexp",
    solution=merge,
    returns=("output", "lse"),
    draw=draw,
    mistakes=(
        Mistake(
            "plain-mean",
            "plain mean of the outputs",
            "the two outputs are weighted equally; each should be weighted by "
            "exp of its logsumexp",
            "(x - shift).exp() → torch.full_like(x, 0.5)",
        ),
        Mistake(
            "sum",
            "sum of the outputs",
            "the outputs are added; both are averages already, so their "
            "weighted average is needed",
            "(x - shift).exp() → torch.ones_like(x)",
        ),
        Mistake(
            "shares-exchanged",
            "weights exchanged",
            "each output is multiplied by the weight of the other part",
            "share_a, share_b = → share_b, share_a =",
        ),
        Mistake(
            "winner-takes-all",
            "only the larger part",
            "only the part with the larger logsumexp is used",
            lambda oa, la, ob, lb: (
                torch.where((la >= lb)[..., None], oa, ob),
                torch.logaddexp(la, lb),
            ),
        ),
        Mistake(
            "ratio-of-logarithms",
            "weights from logarithms",
            "the logsumexps themselves are used as weights; they are "
            "logarithms of the weights",
            "(x - shift).exp() → (x / (lse_a + lse_b))",
        ),
        Mistake(
            "lse-added",
            "logsumexps added",
            "the logsumexps are added, which multiplies the totals; use logaddexp",
            "output_b, lse → output_b, lse_a + lse_b",
        ),
        Mistake(
            "lse-maximum",
            "maximum of the logsumexps",
            "the larger logsumexp is returned; the total of the other part is missing",
            "output_b, lse → output_b, torch.maximum(lse_a, lse_b)",
        ),
        Mistake(
            "lse-mean",
            "mean of the logsumexps",
            "the mean of the logsumexps is returned; use logaddexp",
            "output_b, lse → output_b, (lse_a + lse_b) / 2",
        ),
        Mistake(
            "lse-first",
            "first logsumexp only",
            "the logsumexp of the first part is returned; use logaddexp",
            "output_b, lse → output_b, lse_a",
        ),
        Mistake(
            "lse-unshifted",
            "maximum not added back",
            "the maximum that was subtracted is not added back to the logsumexp",
            merge_by_maximum(log=False),
        ),
        Mistake(
            "not-divided",
            "weights not normalized",
            "the weights are shifted by the maximum, but they are not divided "
            "by their sum",
            merge_by_maximum(divide=False),
        ),
        Mistake(
            "base-two",
            "powers of 2 instead of e",
            "it uses powers of 2; these logarithms are natural",
            (
                "(x - shift).exp() → (x - shift).exp2()",
                "torch.logaddexp( → torch.logaddexp2(",
            ),
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "the exponential is applied to a logsumexp without a shift, so it "
            "overflows or underflows; only the difference of the two "
            "logsumexps is needed",
            merge_without_shift,
        ),
        Mistake(
            "empty-nan",
            "NaN in an empty row",
            "where both parts are empty, -inf - (-inf) gives NaN; the output "
            "should be 0",
            merge_by_maximum(guard=False),
        ),
        Mistake(
            "empty-finite",
            "finite logsumexp of an empty row",
            "NaN is replaced everywhere, so the logsumexp of two empty parts "
            "becomes finite; it should be -inf",
            replace_nan,
        ),
    ),
)
