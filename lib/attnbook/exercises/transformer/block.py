"""Exercise: a Transformer block with the norm before each sublayer.

Source: Xiong et al. (2020), section 3 and figure 1 (b),
    https://arxiv.org/abs/2002.04745
Axes: B batch, T positions, C width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.exercises.solutions.transformer import block
from attnbook.exercises.transformer.sublayers import (
    Attention,
    Network,
    Norm,
)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One vector; then several; then large ones. Sublayers differ each time."""

    def inputs(*shape, size=1.0):
        C = shape[-1]
        mixes, norms = normal(rng, 2, C, C), normal(rng, 2, 2, C)
        return (
            size * normal(rng, *shape),
            Attention(mixes[0]),
            Network(mixes[1]),
            Norm(*norms[0]),
            Norm(*norms[1]),
        )

    usual = inputs(2, 3, 5)
    return (
        Case("with one vector", inputs(1, 1, 3)),
        Case("with 2 x 3 vectors", usual, gradient=True),
        Case("with 4 positions and C = 7", inputs(3, 4, 7), gradient=True),
        Case("with large vectors", inputs(2, 3, 5, size=50.0)),
        Case("in double precision", doubled(usual)),
    )


def second_from_input(x, attention, network, first, second):
    """Add the network's output to what was there at the very beginning."""
    y = x + attention(first(x))
    return x + network(second(y))


def adds_the_normed(x, attention, network, first, second):
    """Add to the normalised vectors, so that nothing passes untouched."""
    y = first(x)
    y = y + attention(y)
    z = second(y)
    return z + network(z)


def post(x, attention, network, first, second):
    """Put the norms after the sums."""
    x = first(x + attention(x))
    return second(x + network(x))


def bare_second(x, attention, network, first, second):
    """Omit the residual connection around the second sublayer."""
    return network(second(x + attention(first(x))))


def bare_first(x, attention, network, first, second):
    """Omit the residual connection around the first sublayer."""
    x = attention(first(x))
    return x + network(second(x))


def normed_after(x, attention, network, first, second):
    """Normalise what the sublayers give, not what they get."""
    x = x + first(attention(x))
    return x + second(network(x))


check_block = Exercise(
    title="pre-norm Transformer block",
    stars=2,
    minutes=10,
    section="The block",
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
            post,
        ),
        Mistake(
            "no-way-past-attention",
            "no residual connection around attention",
            "the residual connection around the attention is missing",
            bare_first,
        ),
        Mistake(
            "no-way-past-network",
            "no residual connection around the FFN",
            "the residual connection around the feed-forward network is "
            "missing",
            bare_second,
        ),
        Mistake(
            "second-from-input",
            "second residual from the block's input",
            "the output of the feed-forward network is added to the block's "
            "input, so the output of the attention is lost",
            second_from_input,
        ),
        Mistake(
            "parallel",
            "parallel sublayers",
            "both sublayers receive the block's input; the feed-forward "
            "network should receive the result of the first residual sum",
            lambda x, attention, network, first, second: (
                x + attention(first(x)) + network(second(x))
            ),
        ),
        Mistake(
            "adds-the-normed",
            "residual after the norm",
            "the outputs are added to the normalized vectors; the residual "
            "connection should carry x itself",
            adds_the_normed,
        ),
        Mistake(
            "norm-of-the-output",
            "norm of the sublayers' outputs",
            "the norms are applied to the outputs of the sublayers; they "
            "should be applied to their inputs",
            normed_after,
        ),
        Mistake(
            "one-norm",
            "first norm used twice",
            "both sublayers use the first norm",
            lambda x, attention, network, first, second: block(
                x, attention, network, first, first
            ),
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
            "network-first",
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
            lambda x, attention, network, first, second: block(
                x, attention, network, lambda y: y, lambda y: y
            ),
        ),
        Mistake(
            "no-network",
            "no feed-forward network",
            "the feed-forward network is missing",
            lambda x, attention, network, first, second: (
                x + attention(first(x))
            ),
        ),
    ),
)
