"""Exercise: the two attentions of a decoder block, each with its own mask.

Source: Vaswani et al. (2017), section 3.2.3, https://arxiv.org/abs/1706.03762
Axes: B batch, T target places, S source places, C width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention import scaled_dot_product
from attnbook.attention.self_attention import causal_mask
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def decoder_step(
    x: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S C"],
    lengths: Int[Tensor, " B"],
    attend: Callable,
) -> Float[Tensor, "B T C"]:
    """Return x after causal self-attention and then cross-attention."""
    past = causal_mask(x.shape[1], x.shape[1])
    x = x + attend(x, x, x, past)
    real = torch.arange(memory.shape[1]) < lengths[:, None, None]
    return x + attend(x, memory, memory, real)


def attend(query, key, value, mask=None):
    """The attention of this exercise; masks are True where it can attend."""
    return scaled_dot_product.attend(query, key, value, mask)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One sequence; padded ones with T ≠ S; T = S; large numbers."""

    def inputs(lengths, t, c, size=1.0):
        b, s = len(lengths), max(lengths)
        x, memory = (
            size * draw_normal(rng, b, t, c),
            size * draw_normal(rng, b, s, c),
        )
        return x, memory, torch.tensor(lengths), attend

    usual = inputs([5, 2, 4], 3, 7)
    x, memory, lengths, given = inputs([4, 1], 5, 3)
    padded = torch.cat([memory, 9 + draw_normal(rng, 2, 2, 3)], dim=1)
    return (
        Case("with one source symbol", inputs([1], 1, 2)),
        Case("without padding", inputs([3, 3], 4, 5), gradient=True),
        Case("with padding", usual, gradient=True),
        Case("with T = S", inputs([4, 2], 4, 5)),
        Case("with B = T = S", inputs([3, 1, 2], 3, 5)),
        Case("with padding for all", (x, padded, lengths, given)),
        Case("with large numbers", inputs([5, 2], 3, 4, size=6.0)),
        Case("in double precision", to_double(usual), asked=False),
    )


check_decoder_step = Exercise(
    title="attention sublayers of a decoder",
    stars=2,
    minutes=15,
    section="The decoder block: self-attention and cross-attention",
    solution=decoder_step,
    returns=("x",),
    draw=draw,
    allowed="`attend` is given; its masks are True where a query can attend.",
    mistakes=(
        Mistake(
            "source-mask-ignored",
            "source padding not masked",
            "the padding of the source is not masked out: `lengths` is not used",
            "memory, real) → memory, None)",
        ),
        Mistake(
            "not-causal",
            "no causal mask",
            "the self-attention has no causal mask: positions can attend to later ones",
            "x, past) → x, None)",
        ),
        Mistake(
            "no-mask",
            "no masks",
            "neither attention has a mask",
            ("memory, real) → memory, None)", "x, past) → x, None)"),
        ),
        Mistake(
            "source-mask-inverted",
            "source mask inverted",
            "the mask of the source is inverted: only padding gets weight",
            "memory, real) → memory, ~real)",
        ),
        Mistake(
            "causal-mask-inverted",
            "causal mask inverted",
            "the causal mask is inverted: positions attend only to later ones",
            "x, past) → x, ~past)",
        ),
        Mistake(
            "not-itself",
            "own position masked out",
            "a position cannot attend to itself: the diagonal is missing",
            "x, past) → x, past.tril(-1))",
        ),
        Mistake(
            "first-length-only",
            "first length for all sequences",
            "all source sequences are masked with the length of the first one",
            "memory, real) → memory, real[:1])",
        ),
        Mistake(
            "wrong-axis",
            "padding mask along the queries",
            "the padding mask is applied along the queries; it should mask out keys",
            "torch.arange(memory.shape[1]) < lengths[:, None, None] "
            "→ (torch.arange(x.shape[1]) < lengths[:, None])[..., None]",
        ),
        Mistake(
            "query-from-memory",
            "queries from the memory",
            "the queries of the cross-attention come from the memory; they "
            "should come from the decoder",
            "attend(x, memory → attend(memory[:, :1].expand_as(x), memory",
        ),
        Mistake(
            "itself-twice",
            "no cross-attention",
            "the second attention is self-attention again; its keys and "
            "values should come from the memory",
            "x, memory, memory, real → x, x, x, past",
        ),
        Mistake(
            "from-input",
            "cross-attention on the input",
            "the queries of the cross-attention come from the input; they "
            "should come from the result of the self-attention",
            ("x = x + attend → y = x + attend", "return x + → return y +"),
        ),
        Mistake(
            "cross-first",
            "cross-attention first",
            "the cross-attention comes before the self-attention",
            (
                "x = x + attend(x, x, x, past) → ",
                "return x + attend(x, memory, memory, real) "
                "→ x = x + attend(x, memory, memory, real); "
                "return x + attend(x, x, x, past)",
            ),
        ),
        Mistake(
            "no-residual-cross-attention",
            "no residual around cross-attention",
            "the residual connection around the cross-attention is missing",
            "return x + attend → return attend",
        ),
        Mistake(
            "no-residual-self-attention",
            "no residual around self-attention",
            "the residual connection around the self-attention is missing",
            "x = x + attend → x = attend",
        ),
    ),
)
