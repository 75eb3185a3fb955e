"""The exercises of the chapter on positional encodings.

Source: RoPE: Su et al. (2021), section 3.4, equation 34,
    https://arxiv.org/abs/2104.09864; ALiBi: Press et al. (2022), section 3,
    https://arxiv.org/abs/2108.12409; longer sequences: Peng et al. (2023), sections
    3.1 and 3.2, https://arxiv.org/abs/2309.00071
Axes: B batch, H heads, T queries, S keys, D width of a head
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.self_attention import causal_mask
from attnbook.exercises.declare import Exercise
from attnbook.positions.absolute import sinusoidal_at
from attnbook.positions.biases import alibi, alibi_slopes, distances
from attnbook.positions.rotary import apply_rotary, rotate


def rotate_cases(draw):
    def inputs(b, h, t, d, at=0, base=10000.0, dtype=torch.float32):
        return draw.normal(b, h, t, d, dtype=dtype), torch.arange(t) + at, base

    start = draw.whole(3, 20)
    jumps = draw.integers(1, 4, 5).cumsum(0).flip(0)
    late = 20_011 + start
    yield "at position 0", *inputs(1, 1, 1, 2)
    yield "with one pair of columns", *inputs(2, 1, 3, 2)
    yield "with 7 pairs of columns", *inputs(2, 3, 5, 14)
    yield "with a first position that is not 0", *inputs(2, 3, 5, 6, start)
    yield "with positions that jump", draw.normal(2, 3, 5, 6), jumps, 1e4
    yield "with another base", *inputs(2, 3, 5, 10, base=100.0)
    yield "with the base left out", *inputs(1, 2, 3, 10)[:2]
    yield "with 300 positions", *inputs(1, 2, 300, 6)
    yield "in double precision", *inputs(2, 1, 1, 6, dtype=torch.float64)
    for name, dtype in ("half precision", torch.float16), ("bfloat16", torch.bfloat16):
        yield f"in {name}", *inputs(2, 3, 5, 6, dtype=dtype)
        yield f"in {name}, at distant positions", *inputs(2, 3, 5, 6, late, dtype=dtype)


RATES = "rotary_frequencies(x, base)"
ANGLES = f"rotary_angles(positions, {RATES})"

check_rotate = Exercise(
    rotate,
    rotate_cases,
    stars=2,
    minutes=15,
    section="RoPE: rotated queries and keys",
    title="rotary position embedding",
    returns=("rotated",),
    helpers=(apply_rotary,),
    same_type=True,
    mistakes={
        "half-split": (
            "column i is paired with column i + D / 2; it should be with its neighbor",
            "apply_rotary → apply_rotary_halves",
        ),
        "backwards": (
            "every pair is rotated in the opposite direction",
            "rotary_angles(positions → rotary_angles(-positions",
        ),
        "offset-ignored": (
            "the positions are counted from 0 instead of taken from `positions`",
            "rotary_angles(positions → rotary_angles(torch.arange(len(positions))",
        ),
        "exponent-by-pair": (
            "the exponent of pair i is i / D; it should be 2i / D",
            f"{RATES} → rotary_frequencies(x, base**0.5)",
        ),
        "pairs-from-one": (
            "the pairs are counted from 1 in the exponent; they should be from 0",
            [
                f"{RATES} → {RATES} * base ** (-2 / x.shape[-1])",
                f"{RATES} → {RATES} * base ** (-1 / x.shape[-1])",
            ],
        ),
        "angles-in-half": (
            "the angles are computed in the dtype of `x`, with too few digits",
            [
                f"{ANGLES} → {ANGLES}.to(x.dtype)",
                f"positions, {RATES} → positions.to(x.dtype), {RATES}",
                f"positions, {RATES} → positions.to(x.dtype), {RATES}.to(x.dtype)",
            ],
        ),
        "added": (
            "sines and cosines are added to `x`; `x` should be rotated",
            lambda x, positions, base=1e4: (
                x + sinusoidal_at(positions, x.shape[-1], base).to(x.dtype)
            ),
        ),
    },
    hints=(
        "Columns 2i and 2i + 1 are a pair; which matrix rotates them by an angle?",
        "Compute the angles in single precision, and interleave the rotated columns.",
    ),
)


def alibi_cases(draw):
    def odd(low, high):  # so that no length is a number of heads
        return 2 * draw.whole(low, high) + 1

    equal, few = odd(2, 6), odd(1, 2)
    yield "with one head", 1, equal, equal
    yield "with 8 heads", 8, equal, equal
    yield "with 2 heads, and fewer queries than keys", 2, odd(2, 5), 13
    yield "with 4 heads, and fewer queries than keys", 4, few, few + 4
    yield "with 16 heads", 16, few, few + 2 * odd(0, 2)
    yield "with one query, as when decoding", 8, 1, odd(1, 8)
    yield "with one key", 4, 1, 1
    yield "with 150 keys", 2, few, 150


def weigh_causally(bias, heads, T, S):
    """Return the weights that a bias alone gives to the keys up to the query.

    A softmax subtracts any constant of a row, and a causal mask removes the keys
    after a query: there, a bias may be anything.
    """
    shape = getattr(bias, "shape", None)
    if shape != (heads, T, S) or not bias.is_floating_point():
        return bias
    return masked_softmax(bias, causal_mask(T, S))


AWAY = "distances(queries, keys, device).abs()"
FROM_ZERO = "torch.arange(queries)[:, None] - torch.arange(1.0 * keys)"

check_alibi = Exercise(
    alibi,
    alibi_cases,
    stars=1,
    minutes=10,
    section="Relative positions and ALiBi: a bias for each distance",
    title="ALiBi",
    returns=("causal_softmax(bias)",),
    helpers=(distances, alibi_slopes),
    compare=weigh_causally,
    mistakes={
        "sign": (
            "the sign is wrong: distant keys are favored instead of penalized",
            "return - → return ",
        ),
        "top-left": (
            "queries and keys are both counted from 0; query t is at t + S - T",
            [
                f"{AWAY} → ({FROM_ZERO}).abs()",
                f"{AWAY} → ({FROM_ZERO}).clamp(min=0)",
                f"{AWAY} → ({FROM_ZERO}) ; * away → "
                "* away.masked_fill(away < 0, torch.inf)",
            ],
        ),
        "slopes-of-8-heads": (
            "the slope of head h is 2^-h, which is right for 8 heads only",
            "alibi_slopes(heads, device) → 2.0 ** -torch.arange(1, heads + 1)",
        ),
        "slopes-from-one": (
            "the slope of the first head is 1; the exponent should count from 1",
            "alibi_slopes(heads, device) → 2.0 ** (-8 * torch.arange(heads) / heads)",
        ),
        "slopes-reversed": (
            "the slopes are reversed: the first should be the steepest",
            "device)[ → device).flip(0)[",
        ),
    },
    hints=(
        "The bias is minus a slope for each head times the distance to the key.",
        "Query t is at position t + S - T; head h of H has the slope 2^(-8h / H), "
        "counted from 1.",
    ),
)


def new_angles(D: int, base: float, L: int, s: int) -> list[int]:
    """Return four counts of pairs of columns.

    In this order: pairs that complete at least one rotation within L positions;
    pairs that reach new angles within s · L positions if nothing is changed,
    with position interpolation, and with NTK-aware scaling.
    """
    complete = sum(L * base ** (-2 * i / D) >= 2 * math.pi for i in range(D // 2))
    slow = D // 2 - complete
    # NTK-aware scaling divides only the slowest pair by s.
    return [complete, slow, 0, max(slow - 1, 0)]


def new_angles_cases(draw):
    def one_of(*choices):
        return choices[draw.whole(0, len(choices) - 1)]

    def usual(*widths):
        base, L = one_of(1e4, 5e5, 1e6), one_of(512, 2048, 4096, 8192)
        return one_of(*widths), base, L, one_of(2, 4, 8)

    yield "with two pairs", 4, 1e4, 64, 2
    yield "with this chapter's model", 16, 1e4, 64, one_of(2, 4, 8)
    yield "with a small base", 16, 100.0, one_of(2048, 4096), 4
    yield "with very short sequences", one_of(8, 16), 1e4, 4, 2
    yield "with heads of usual width", *usual(64, 80, 96)
    yield "with wide heads", *usual(128, 256)
    yield "with the sizes of Llama 3.1", 128, 5e5, 8192, 8


check_new_angles = Exercise(
    new_angles,
    new_angles_cases,
    stars=2,
    minutes=15,
    section="Context extension: position interpolation, NTK-aware scaling and YaRN",
    title="new angles of RoPE in longer sequences",
    returns=("counts",),
    mistakes={
        "one-radian": (
            "a pair counts as complete at 1 radian; a rotation has 2π",
            "2 * math.pi → 1.0",
        ),
        "exponent-by-pair": (
            "the exponent of pair i is i / D; it should be 2i / D",
            "-2 * i → -i",
        ),
        "counted-at-the-longer-length": (
            "complete pairs are counted within s · L positions instead of L",
            "L * base → s * L * base",
        ),
        "complete-pairs-new": (
            "all pairs count as reaching new angles; complete ones have none",
            "[complete, slow, → [complete, D // 2,",
        ),
        "interpolation-without-effect": (
            "interpolation is counted as if nothing were changed",
            "slow, 0, → slow, slow,",
        ),
        "ntk-like-interpolation": (
            "NTK-aware scaling is counted like interpolation",
            "max(slow - 1, 0) → 0",
        ),
    },
    hints=(
        "Pair i completes a rotation if its largest angle in training is at least 2π.",
        "NTK-aware scaling divides the slowest pair by exactly s, the others by less.",
    ),
)


def make_head(reason: str, back: int, position: int, word: int) -> Callable:
    """Return a function that gives the last query's weights, for one reason.

    The attended key is so many words `back`, at a `position`, or a `word`.
    """

    def head(words: Int[Tensor, "S"], positions: Int[Tensor, "S"]) -> Tensor:
        if words.shape != positions.shape:
            raise ValueError(f"{len(words)} words have {len(positions)} positions")
        attended = {
            "distance": positions == positions[-1] - back,
            "position": positions == position,
            "word": words == word,
            "row": torch.arange(len(words)) == len(words) - 1 - back,
        }[reason]
        # Every head also depends a little on all words and positions.
        scores = (1.7 * words + 0.9 * positions).sin() * 0.3
        return torch.where(attended, 8.0, scores.float()).softmax(-1)

    return head


def position_use(
    head: Callable, words: Int[Tensor, "S"], positions: Int[Tensor, "S"]
) -> int:
    """Return what determines the attended key, as the number of an explanation.

    0: its distance from the query. 1: its position. 2: its word. 3: its row in
    the tensor, whatever positions are given.

    Args:
        head: (words, positions) to the weights of the last query (S,).
        words: an example.
        positions: of the example, 0 to S - 1.
    """
    key = int(head(words, positions).argmax())

    def attends(words: Tensor, positions: Tensor) -> bool:
        return head(words, positions)[key].item() > 0.5

    other = words.clone()
    other[key] = words.max() + 1
    if not attends(words, positions + 100):
        return 1
    if not attends(other, positions):
        return 2
    # Twice the positions: twice the distances, in the same rows.
    return 3 if attends(words, 2 * positions) else 0


def position_use_cases(draw):
    for S in 6, 9, 13:
        for reason in draw.shuffle(("distance", "position", "word", "row")):
            words, key = torch.randperm(50, generator=draw)[:S], draw.whole(2, S - 2)
            head = make_head(reason, S - 1 - key, key, int(words[key]))
            what = f"with {S} words and a head that attends by the {reason}"
            yield what, head, words, torch.arange(S)


check_position_use = Exercise(
    position_use,
    position_use_cases,
    stars=3,
    minutes=20,
    section="Where positions enter: embeddings, queries and keys, or scores",
    title="inputs that show what a head goes by",
    returns=("explanation",),
    mistakes={
        "example-only": (
            "it tries only the example, for which all explanations predict the same",
            lambda head, words, positions: 0,
        ),
        "shift-not-tested": (
            "it never moves all positions, so it confuses position and distance",
            "return 1 → pass",
        ),
        "word-not-tested": (
            "it never replaces the attended word, so it confuses word and row",
            "return 2 → pass",
        ),
        "gap-not-tested": (
            "it never changes a distance, so it confuses distance and row",
            "return 3 if → return 0 if",
        ),
        "gap-in-the-past": (
            "its gap lies before the attended key, whose distance stays the same",
            "2 * positions) else → positions + 60 * (positions >= key)) else",
        ),
    },
    hints=(
        "Which explanations still hold if all positions grow by 100?",
        "Then replace the attended word, and then double the positions.",
    ),
)
