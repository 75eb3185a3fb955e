"""Exercise: a Transformer block with the norm before each sublayer.

Chapter: chapters/09_transformer
Source: Xiong et al. (2020), section 3 and figure 1 (b),
    https://arxiv.org/abs/2002.04745
Axes: B batch, T positions, C width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.exercises.transformer.sublayers import (
    Attention,
    Network,
    Norm,
)
from attnbook.solutions.transformer import block


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
    """Forget the second sublayer's way past it."""
    return network(second(x + attention(first(x))))


def bare_first(x, attention, network, first, second):
    """Forget the first sublayer's way past it."""
    x = attention(first(x))
    return x + network(second(x))


def normed_after(x, attention, network, first, second):
    """Normalise what the sublayers give, not what they get."""
    x = x + first(attention(x))
    return x + second(network(x))


check_block = Exercise(
    title="a block with the norm first",
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
            "the norms come after the sums: that is the block of the 2017 "
            "paper, and here the norm comes first",
            post,
        ),
        Mistake(
            "no-way-past-attention",
            "what was there is not added to the attention's output",
            bare_first,
        ),
        Mistake(
            "no-way-past-network",
            "what was there is not added to the network's output",
            bare_second,
        ),
        Mistake(
            "second-from-input",
            "the network's output is added to the block's input, so that the "
            "attention's is lost",
            second_from_input,
        ),
        Mistake(
            "parallel",
            "both sublayers get the block's input; the network should get what "
            "attention has added",
            lambda x, attention, network, first, second: (
                x + attention(first(x)) + network(second(x))
            ),
        ),
        Mistake(
            "adds-the-normed",
            "the outputs are added to the normalised vectors; the way past a "
            "sublayer should carry x as it is",
            adds_the_normed,
        ),
        Mistake(
            "norm-of-the-output",
            "the norms stand behind the sublayers, before the sum",
            normed_after,
        ),
        Mistake(
            "one-norm",
            "both sublayers use the first norm",
            lambda x, attention, network, first, second: block(
                x, attention, network, first, first
            ),
        ),
        Mistake(
            "norms-swapped",
            "the norms have changed places",
            lambda x, attention, network, first, second: block(
                x, attention, network, second, first
            ),
        ),
        Mistake(
            "network-first",
            "the sublayers have changed places",
            lambda x, attention, network, first, second: block(
                x, network, attention, first, second
            ),
        ),
        Mistake(
            "no-norm",
            "the norms are not used",
            lambda x, attention, network, first, second: block(
                x, attention, network, lambda y: y, lambda y: y
            ),
        ),
        Mistake(
            "no-network",
            "the block ends after the attention",
            lambda x, attention, network, first, second: (
                x + attention(first(x))
            ),
        ),
    ),
)
