"""Exercise: text that attends to an image, behind a gate.

Source: Alayrac et al. (2022), section 2.2, https://arxiv.org/abs/2204.14198
Axes: B batch, T positions of the text, S positions of the image, C and M their
    widths, D width of query and key
"""

from collections.abc import Callable

import torch

from attnbook.attention.gated_cross_attention import gated_cross_attention
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double
from attnbook.exercises.self_attention.cross_attention import average_values


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A gate of 0; one position each; then T ≠ S and C ≠ M."""

    def inputs(gate, b, t, s, c, m, d):
        sizes = (d, c), (d, m), (c, m)
        matrices = (draw_normal(rng, *size) * size[1] ** -0.5 for size in sizes)
        text, image = draw_normal(rng, b, t, c), draw_normal(rng, b, s, m)
        return text, image, *matrices, torch.tensor(gate)

    usual = inputs(0.5, 2, 3, 5, 7, 11, 2)
    loud = (*(4 * x for x in usual[:2]), *usual[2:])
    return (
        Case("with a gate of 0", inputs(0.0, 1, 2, 3, 2, 3, 5)),
        Case("with one position each", inputs(1.0, 1, 1, 1, 2, 3, 5)),
        Case("with 3 words and 5 patches", usual, gradient=True),
        Case("with a negative gate", inputs(-2.0, 2, 5, 3, 3, 2, 7)),
        Case("with everything equal", inputs(0.7, 3, 3, 3, 3, 3, 3)),
        Case("with large scores", loud),
        Case("in double precision", to_double(usual), asked=False),
    )


def pass_gate(attend: Callable) -> Callable:
    """Return gated cross-attention with another attention."""
    return lambda text, image, W_query, W_key, W_value, gate: (
        text + gate.tanh() * attend(text, image, W_query, W_key, W_value)
    )


def gate_scores(text, image, W_query, W_key, W_value, gate):
    """Multiply the scores by tanh(gate) instead of the output."""
    attend = average_values(bend=lambda scores: gate.tanh() * scores)
    return text + attend(text, image, W_query, W_key, W_value)


ATTENDED = "gate.tanh() * attended"

check_gated_cross_attention = Exercise(
    title="gated cross-attention",
    stars=2,
    minutes=15,
    section="Gated cross-attention",
    solution=gated_cross_attention,
    returns=("output",),
    draw=draw,
    key_line=f"return text + {ATTENDED}",
    mistakes=(
        Mistake(
            "sigmoid",
            "sigmoid instead of tanh",
            "the gate goes through a sigmoid, which is 0.5 at 0; tanh is 0 "
            "there, so that the layer changes nothing",
            "gate.tanh() → gate.sigmoid()",
        ),
        Mistake(
            "no-tanh",
            "tanh left out",
            "the attention is multiplied by the gate itself; it should be "
            "multiplied by tanh(gate)",
            "gate.tanh() → gate",
        ),
        Mistake(
            "no-gate",
            "gate left out",
            "the gate is not used",
            f"{ATTENDED} → attended",
        ),
        Mistake(
            "no-residual",
            "residual connection left out",
            "the text is not added; with a gate of 0, the layer should return the text",
            "text + gate → gate",
        ),
        Mistake(
            "interpolated",
            "mixture of text and attention",
            "the text is multiplied by 1 - tanh(gate); it should be added as it is",
            "text + gate → (1 - gate.tanh()) * text + gate",
        ),
        Mistake(
            "text-gated",
            "gate on the text",
            "the gate multiplies the text; it should multiply the attention",
            f"text + {ATTENDED} → gate.tanh() * text + attended",
        ),
        Mistake(
            "sum-gated",
            "gate on the sum",
            "the gate multiplies the sum of text and attention; it should "
            "multiply the attention only",
            f"text + {ATTENDED} → gate.tanh() * (text + attended)",
        ),
        Mistake(
            "tanh-of-the-product",
            "tanh of gate times attention",
            "tanh is applied to the product of gate and attention; it should "
            "be applied to the gate only",
            f"{ATTENDED} → (gate * attended).tanh()",
        ),
        Mistake(
            "scores-gated",
            "gate on the scores",
            "the gate multiplies the scores before the softmax. With a gate of "
            "0, the weights are then equal and the mean of the values is added",
            gate_scores,
        ),
        Mistake(
            "not-scaled",
            "scores not divided",
            "the scores are not divided by √D",
            pass_gate(average_values(scale=lambda D, C: 1.0)),
        ),
        Mistake(
            "scaled-by-text-width",
            "scores divided by √C",
            "the scores are divided by √C, the width of the text; it should be "
            "√D, the width of query and key",
            pass_gate(average_values(scale=lambda D, C: C**-0.5)),
        ),
        Mistake(
            "softmax-over-text",
            "softmax over the text",
            "the softmax runs over the positions of the text; it should run "
            "over those of the image, which are the keys",
            pass_gate(average_values(axis=-2)),
        ),
    ),
)
