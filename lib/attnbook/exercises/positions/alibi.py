"""Exercise: a penalty that grows with the distance.

Source: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409
Axes: H heads, T queries, S keys; the queries are the last T of S positions
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.self_attention import causal_mask
from attnbook.exercises.exercise import Case, Exercise, Mistake, Outcome
from attnbook.exercises.inputs import draw_integers


def alibi(heads: int, queries: int, keys: int) -> Float[Tensor, "H T S"]:
    """Return minus slope times distance; the last query is at the last key."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    t = torch.arange(keys - queries, keys)[:, None]
    return -slopes[:, None, None] * (t - torch.arange(keys))


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then several; then fewer queries than keys."""

    def odd(low, high):
        return 2 * draw_integers(rng, low // 2, high // 2, 1).item() + 1

    # Odd, so that no length is a number of heads.
    equal, few = odd(5, 13), odd(3, 5)
    return (
        Case("with one head", (1, equal, equal)),
        Case("with 8 heads", (8, equal, equal)),
        Case("with 2 heads", (2, odd(5, 11), 13)),
        Case("with 4 heads, and fewer queries than keys", (4, few, few + 4)),
        Case("with 16 heads", (16, few, few + 2 * odd(1, 5))),
        Case("with one query, as when decoding", (8, 1, odd(3, 17))),
        Case("with one key", (4, 1, 1)),
        # The paper's own code has other slopes if this is no power of two.
        Case("with 12 heads", (12, few, equal), asked=False),
    )


def compute_causal_weights(outcome: Outcome) -> Outcome:
    """Return the weights that a bias alone gives among the keys so far.

    A softmax takes any constant of a row away, and a causal mask all that
    stands after a query: there, a bias may be whatever it likes.
    """
    if outcome.form != "a tensor":
        return outcome
    (bias,) = outcome.output
    if bias.ndim != 3 or not bias.is_floating_point():
        return outcome
    weights = masked_softmax(bias, causal_mask(*bias.shape[1:]))
    return replace(outcome, output=(weights,))


check_alibi = Exercise(
    title="ALiBi",
    stars=1,
    minutes=10,
    section="Relative positions and ALiBi: a bias for each distance",
    solution=alibi,
    returns=("bias",),
    compared="After a causal softmax",
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    compare_by=compute_causal_weights,
    mistakes=(
        Mistake(
            "sign",
            "bias with the wrong sign",
            "the sign of the bias is wrong: distant keys are favored; they "
            "should be penalized",
            "return - → return ",
        ),
        Mistake(
            "top-left",
            "positions aligned at the top left",
            "queries and keys are both counted from 0; the last query should "
            "have the position of the last key",
            (
                "torch.arange(keys - queries, keys) → torch.arange(queries)",
                "(t - torch.arange(keys)) → (t - torch.arange(keys)).abs()",
            ),
        ),
        Mistake(
            "top-left-clamped",
            "top left, no bias for the future",
            "queries and keys are both counted from 0, and keys after the "
            "query have no bias; the last query should have the position of "
            "the last key",
            (
                "torch.arange(keys - queries, keys) → torch.arange(queries)",
                "(t - torch.arange(keys)) → (t - torch.arange(keys)).clamp(min=0)",
            ),
        ),
        Mistake(
            "slopes-of-8-heads",
            "slopes of 8 heads",
            "the slope of head h is 2^-h, which is right for 8 heads only; "
            "the exponent depends on the number of heads",
            "-8.0 * torch.arange(1, heads + 1) / heads → -torch.arange(1, heads + 1)",
        ),
        Mistake(
            "slopes-from-one",
            "slopes start at 1",
            "the slope of the first head is 1; the heads should be counted "
            "from 1 in the exponent, so that the last slope is 2^-8",
            "(1, heads + 1) → (heads)",
        ),
        Mistake(
            "slopes-reversed",
            "slopes in reverse order",
            "the slopes are in reverse order: the first head should have the "
            "steepest slope",
            "/ heads) → / heads).flip(0)",
        ),
        Mistake(
            "slopes-reciprocal",
            "reciprocal slopes",
            "the slopes are the reciprocals of the right ones: the exponent "
            "should be negative",
            "-8.0 → 8.0",
        ),
        Mistake(
            "slopes-linear",
            "linear slopes",
            "the slopes decrease by equal steps; they should decrease by equal factors",
            "2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads) "
            "→ torch.arange(heads, 0, -1) / heads",
        ),
        Mistake(
            "slopes-harmonic",
            "harmonic slopes",
            "the slope of head h is 1 / h; the slopes should decrease by equal factors",
            "2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads) "
            "→ 1 / torch.arange(1, heads + 1)",
        ),
        Mistake(
            "one-slope",
            "first slope for all heads",
            "every head has the slope of the first one",
            "slopes[:, None, None] → slopes[:1, None, None].expand(heads, 1, 1)",
        ),
        Mistake(
            "no-slope",
            "slope 1 for all heads",
            "every head has the slope 1",
            "2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads) → torch.ones(heads)",
        ),
        Mistake(
            "squared",
            "squared distance",
            "the distance is squared; the bias should be linear in the distance",
            "(t - torch.arange(keys)) → (t - torch.arange(keys)).square()",
        ),
        Mistake(
            "logarithmic",
            "logarithm of the distance",
            "the bias grows with the logarithm of the distance; it should be "
            "linear in the distance",
            "(t - torch.arange(keys)) → (t - torch.arange(keys)).abs().log1p()",
        ),
        Mistake(
            "zero",
            "no penalty",
            "all earlier keys have the same bias; it should grow with the distance",
            "(t - torch.arange(keys)) → (t - torch.arange(keys)) * 0",
        ),
        Mistake(
            "weights-returned",
            "weights instead of a bias",
            "the softmax has already been applied: these are weights, and the "
            "exercise asks for the bias",
            lambda heads, T, S: masked_softmax(alibi(heads, T, S), causal_mask(T, S)),
        ),
        Mistake(
            "factor-returned",
            "factor instead of a bias",
            "it returns the exponential of the bias, a factor for the "
            "weights; the bias itself is added to the scores",
            lambda *given: alibi(*given).exp(),
        ),
        Mistake(
            "heads-last",
            "axis of heads last",
            "the axis of heads comes last; the shape should be (heads, T, S)",
            lambda *given: alibi(*given).permute(1, 2, 0),
        ),
        Mistake(
            "transposed",
            "queries and keys swapped",
            "the axes of queries and keys are swapped; the shape should be "
            "(heads, T, S)",
            lambda *given: alibi(*given).mT,
        ),
        Mistake(
            "batch-axis",
            "extra batch axis",
            "there is an extra axis of length 1; the shape should be (heads, T, S)",
            lambda *given: alibi(*given)[None],
        ),
        Mistake(
            "double-precision",
            "double precision",
            "the bias is in double precision, which would convert the scores "
            "to double precision",
            lambda *given: alibi(*given).double(),
        ),
    ),
)
