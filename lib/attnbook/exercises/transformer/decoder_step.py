"""Exercise: the two attentions of a decoder block, each with its own mask.

Source: Vaswani et al. (2017), section 3.2.3, https://arxiv.org/abs/1706.03762
Axes: B batch, T target places, S source places, C width
"""

import torch

from attnbook.attention import scaled_dot_product
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.exercises.solutions.transformer import decoder_step


def attend(query, key, value, mask=None):
    """The attention of this exercise; masks are True where it can attend."""
    return scaled_dot_product.attend(query, key, value, mask)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One sequence; padded ones with T ≠ S; T = S; large numbers."""

    def inputs(lengths, t, c, size=1.0):
        b, s = len(lengths), max(lengths)
        x, memory = size * normal(rng, b, t, c), size * normal(rng, b, s, c)
        return x, memory, torch.tensor(lengths), attend

    usual = inputs([5, 2, 4], 3, 7)
    x, memory, lengths, given = inputs([4, 1], 5, 3)
    padded = torch.cat([memory, 9 + normal(rng, 2, 2, 3)], dim=1)
    return (
        Case("with one source symbol", inputs([1], 1, 2)),
        Case("without padding", inputs([3, 3], 4, 5), gradient=True),
        Case("with padding", usual, gradient=True),
        Case("with T = S", inputs([4, 2], 4, 5)),
        Case("with B = T = S", inputs([3, 1, 2], 3, 5)),
        Case("with padding for all", (x, padded, lengths, given)),
        Case("with large numbers", inputs([5, 2], 3, 4, size=6.0)),
        Case("in double precision", doubled(usual)),
    )


def masks(x, memory, lengths):
    """Return the causal mask, and that of the real source symbols."""
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return past, torch.arange(memory.shape[1]) < lengths[:, None, None]


def with_masks(change):
    """Return an answer whose masks are changed."""

    def answer(x, memory, lengths, attend):
        past, real = change(*masks(x, memory, lengths))
        x = x + attend(x, x, x, past)
        return x + attend(x, memory, memory, real)

    return answer


def pushed(past, real):
    """Let each place see only those strictly before it, and the first."""
    strict = past.tril(-1)
    strict[0, 0] = True
    return strict, real


def wrong_axis(x, memory, lengths, attend):
    """Hide padded queries instead of padded keys."""
    past, _ = masks(x, memory, lengths)
    x = x + attend(x, x, x, past)
    rows = torch.arange(x.shape[1]) < lengths[:, None]
    return x + attend(x, memory, memory, rows[..., None])


def memory_asks_itself(x, memory, lengths, attend):
    """Take the first source states for the decoder's queries."""
    past, real = masks(x, memory, lengths)
    x = x + attend(x, x, x, past)
    first = memory[:, :1].expand(-1, x.shape[1], -1)
    return x + attend(first, memory, memory, real)


def from_input(x, memory, lengths, attend):
    """Let both attentions start from the input."""
    past, real = masks(x, memory, lengths)
    return x + attend(x, x, x, past) + attend(x, memory, memory, real)


def no_way_past(x, memory, lengths, attend, first=False):
    """Forget to add what was there before, at one of the attentions."""
    past, real = masks(x, memory, lengths)
    y = attend(x, x, x, past) + (0 if first else x)
    return attend(y, memory, memory, real) + (y if first else 0)


def cross_first(x, memory, lengths, attend):
    """Ask the memory before the past."""
    past, real = masks(x, memory, lengths)
    x = x + attend(x, memory, memory, real)
    return x + attend(x, x, x, past)


def itself_twice(x, memory, lengths, attend):
    """Never ask the memory."""
    past, _ = masks(x, memory, lengths)
    x = x + attend(x, x, x, past)
    return x + attend(x, x, x, past)


check_decoder_step = Exercise(
    title="attention sublayers of a decoder",
    stars=2,
    minutes=15,
    section="The decoder asks twice",
    solution=decoder_step,
    returns=("x",),
    draw=draw,
    allowed="`attend` is given; its masks are True where a query can attend.",
    mistakes=(
        Mistake(
            "source-mask-ignored",
            "source padding not masked",
            "the padding of the source is not masked out: `lengths` is not "
            "used",
            with_masks(lambda past, real: (past, None)),
        ),
        Mistake(
            "not-causal",
            "no causal mask",
            "the self-attention has no causal mask: positions can attend to "
            "later ones",
            with_masks(lambda past, real: (None, real)),
        ),
        Mistake(
            "no-mask",
            "no masks",
            "neither attention has a mask",
            with_masks(lambda past, real: (None, None)),
        ),
        Mistake(
            "source-mask-inverted",
            "source mask inverted",
            "the mask of the source is inverted: only padding gets weight",
            with_masks(lambda past, real: (past, ~real)),
        ),
        Mistake(
            "causal-mask-inverted",
            "causal mask inverted",
            "the causal mask is inverted: positions attend only to later ones",
            with_masks(lambda past, real: (~past, real)),
        ),
        Mistake(
            "not-itself",
            "own position masked out",
            "a position cannot attend to itself: the diagonal is missing",
            with_masks(lambda past, real: (past.tril(-1), real)),
        ),
        Mistake(
            "first-text-only",
            "first length for all sequences",
            "all source sequences are masked with the length of the first one",
            with_masks(lambda past, real: (past, real[:1])),
        ),
        Mistake(
            "wrong-axis",
            "padding mask along the queries",
            "the padding mask is applied along the queries; it should mask "
            "out keys",
            wrong_axis,
        ),
        Mistake(
            "memory-asks-itself",
            "queries from the memory",
            "the queries of the cross-attention come from the memory; they "
            "should come from the decoder",
            memory_asks_itself,
        ),
        Mistake(
            "itself-twice",
            "no cross-attention",
            "the second attention is self-attention again; its keys and "
            "values should come from the memory",
            itself_twice,
        ),
        Mistake(
            "from-input",
            "cross-attention on the input",
            "the queries of the cross-attention come from the input; they "
            "should come from the result of the self-attention",
            from_input,
        ),
        Mistake(
            "cross-first",
            "cross-attention first",
            "the cross-attention comes before the self-attention",
            cross_first,
        ),
        Mistake(
            "no-way-past-memory",
            "no residual around cross-attention",
            "the residual connection around the cross-attention is missing",
            no_way_past,
        ),
        Mistake(
            "no-way-past-itself",
            "no residual around self-attention",
            "the residual connection around the self-attention is missing",
            lambda *given: no_way_past(*given, first=True),
        ),
    ),
)
