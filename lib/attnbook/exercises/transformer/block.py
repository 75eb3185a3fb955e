"""Exercise: a Transformer block with pre-norm.

Source: Xiong et al. (2020), section 3 and figure 1 (b),
    https://arxiv.org/abs/2002.04745
Axes: B batch, T positions, C width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double
from attnbook.models.layer_norm import layer_norm


def block(
    x: Float[Tensor, "B T C"],
    attention: Callable,
    network: Callable,
    first: Callable,
    second: Callable,
) -> Float[Tensor, "B T C"]:
    """Return x plus each sublayer's output for the normalized input."""
    x = x + attention(first(x))
    return x + network(second(x))


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One vector; then several; then large ones. Sublayers differ each time."""

    def inputs(*shape, size=1.0):
        C = shape[-1]
        mixes, norms = draw_normal(rng, 2, C, C), draw_normal(rng, 2, 2, C)
        return (
            size * draw_normal(rng, *shape),
            GivenAttention(mixes[0]),
            GivenFeedForward(mixes[1]),
            GivenNorm(*norms[0]),
            GivenNorm(*norms[1]),
        )

    usual = inputs(2, 3, 5)
    return (
        Case("with one vector", inputs(1, 1, 3)),
        Case("with 2 x 3 vectors", usual, gradient=True),
        Case("with 4 positions and C = 7", inputs(3, 4, 7), gradient=True),
        Case("with large vectors", inputs(2, 3, 5, size=50.0)),
        Case("in double precision", to_double(usual), asked=False),
    )


class GivenFunction:
    """A function that is equal to another with the same numbers."""

    def __init__(self, *numbers: torch.Tensor):
        self.numbers = numbers

    def __eq__(self, other: object) -> bool:
        """Tell whether the other is of the same kind, with the same numbers."""
        return type(other) is type(self) and all(
            map(torch.equal, self.numbers, other.numbers)
        )

    # `object` declares it as a method.
    __hash__ = None  # type: ignore[assignment]


class GivenAttention(GivenFunction):
    """Every position gets the mean of those up to itself, times a matrix."""

    def __call__(self, x):
        """Return what each position takes from its past."""
        past = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()
        spread = past / past.sum(-1, keepdim=True)
        return spread @ x @ self.numbers[0].to(x).T


class GivenFeedForward(GivenFunction):
    """A matrix and a ReLU."""

    def __call__(self, x):
        """Return what the network makes of each vector."""
        return (x @ self.numbers[0].to(x).T).relu()


class GivenNorm(GivenFunction):
    """Layer norm with its gain and bias."""

    def __call__(self, x):
        """Return each vector normalised."""
        return layer_norm(x, *(n.to(x) for n in self.numbers))


check_block = Exercise(
    title="pre-norm Transformer block",
    stars=2,
    minutes=10,
    section="The Transformer block: post-norm and pre-norm",
    solution=block,
    returns=("x",),
    draw=draw,
    allowed="Everything is allowed but a ready-made block.",
    mistakes=(
        Mistake(
            "post-norm",
            "post-norm instead of pre-norm",
            "the norms come after the residual sums: this is the post-norm "
            "block of the 2017 paper; the exercise asks for pre-norm",
            (
                "x + attention(first(x)) → first(x + attention(x))",
                "x + network(second(x)) → second(x + network(x))",
            ),
        ),
        Mistake(
            "no-residual-attention",
            "no residual connection around attention",
            "the residual connection around the attention is missing",
            "x + attention → attention",
        ),
        Mistake(
            "no-residual-feed-forward",
            "no residual connection around the FFN",
            "the residual connection around the feed-forward network is missing",
            "x + network → network",
        ),
        Mistake(
            "second-from-input",
            "second residual from the block's input",
            "the output of the feed-forward network is added to the block's "
            "input, so the output of the attention is lost",
            ("x = x + attention → y = x + attention", "second(x) → second(y)"),
        ),
        Mistake(
            "parallel",
            "parallel sublayers",
            "both sublayers receive the block's input; the feed-forward "
            "network should receive the result of the first residual sum",
            (
                "x = x + attention → y = attention",
                "x + network → x + y + network",
            ),
        ),
        Mistake(
            "adds-to-normalized",
            "residual after the norm",
            "the outputs are added to the normalized vectors; the residual "
            "connection should carry x itself",
            (
                "x + attention → first(x) + attention",
                "x + network → second(x) + network",
            ),
        ),
        Mistake(
            "norm-of-the-output",
            "norm of the sublayers' outputs",
            "the norms are applied to the outputs of the sublayers; they "
            "should be applied to their inputs",
            (
                "attention(first(x)) → first(attention(x))",
                "network(second(x)) → second(network(x))",
            ),
        ),
        Mistake(
            "one-norm",
            "first norm used twice",
            "both sublayers use the first norm",
            "second(x) → first(x)",
        ),
        Mistake(
            "norms-swapped",
            "norms swapped",
            "the two norms are swapped",
            lambda x, attention, network, first, second: block(
                x, attention, network, second, first
            ),
        ),
        Mistake(
            "feed-forward-first",
            "sublayers swapped",
            "the sublayers are swapped: the attention should come first",
            lambda x, attention, network, first, second: block(
                x, network, attention, first, second
            ),
        ),
        Mistake(
            "no-norm",
            "no norms",
            "the norms are not used",
            ("first(x) → x", "second(x) → x"),
        ),
        Mistake(
            "no-feed-forward",
            "no feed-forward network",
            "the feed-forward network is missing",
            " + network(second(x)) → ",
        ),
    ),
)
