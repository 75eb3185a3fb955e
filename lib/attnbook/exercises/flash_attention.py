"""The exercises of the chapter on FlashAttention.

Source: tiles: Dao et al. (2022), section 3.1, algorithms 1 and 4,
    https://arxiv.org/abs/2205.14135; the order of the loops and the logsumexp: Dao
    (2023), section 3.1, https://arxiv.org/abs/2307.08691
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of values, R
    queries and C keys of a tile, n positions
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnbook import flash
from attnbook.attention import scaled_dot_product
from attnbook.attention import tiled as ready
from attnbook.exercises.declare import ATTENTION, Case, Exercise
from attnbook.exercises.kernels import KernelExercise, tl, triton

# The library's attention, which an answer may not call.
READY_MADE = (
    flash.flash_attention,
    scaled_dot_product.attend_in_query_chunks,
    ready.accumulate_tiles,
    ready.attend_tiled,
    scaled_dot_product.attend,
)


def tiled(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    block: int,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention and each row's logsumexp, from tiles of the scores."""
    outputs, sums = [], []
    for q in (query * query.shape[-1] ** -0.5).split(block, dim=-2):
        maximum = q.new_full(q.shape[:-1], -torch.inf)
        total = torch.zeros_like(maximum)
        output = q.new_zeros(*q.shape[:-1], value.shape[-1])
        for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
            scores = q @ k.mT
            higher = torch.maximum(maximum, scores.amax(dim=-1))
            factor = (maximum - higher).exp()
            weights = (scores - higher[..., None]).exp()
            total = total * factor + weights.sum(dim=-1)
            output = output * factor[..., None] + weights @ v
            maximum = higher
        outputs.append(output / total[..., None])
        sums.append(maximum + total.log())
    return torch.cat(outputs, dim=-2), torch.cat(sums, dim=-1)


def draw_inputs(draw, *lead, t, s, d=7, e=5):
    """Return a query, a key and a value of normal numbers."""
    sizes = (t, d), (s, d), (s, e)
    return tuple(draw.normal(*lead, *size) for size in sizes)


def draw_large_scores(draw, signs, step=0, size=120, part=1.0):
    """Return inputs whose scores for 11 keys lie near ± a size, without rounding."""
    along = draw.integers(0, 1, 16) * 2.0 - 1
    key = 5 * along.repeat(11, 1)
    key[:, :4] += part * draw.integers(-1, 1, 11, 4)
    key[:, 0] += part * step * torch.arange(11) * along[0]
    return size / 20 * along * torch.tensor(signs)[:, None], key, draw.normal(11, 5)


def tiled_cases(draw):
    def case(tries, given, block, memory=None):
        return Case(tries, (*given, block), gradient=False, memory=memory)

    inputs = functools.partial(draw_inputs, draw)
    large = functools.partial(draw_large_scores, draw)
    yield case("with one query and one key", inputs(t=1, s=1, d=3, e=2), 4)
    yield case("with a block larger than everything", inputs(t=3, s=5), 8)
    yield case("with two tiles of keys", inputs(t=2, s=4), 2)
    yield case("with all sizes equal", inputs(t=4, s=4, d=4, e=4), 2)
    ragged = "with lengths that are not multiples of the block"
    yield case(ragged, inputs(t=5, s=7), 3)
    yield case("with a batch of 3 and 2 heads", inputs(3, 2, t=5, s=7), 2)
    yield case("with scores that grow from key to key", large([1, 1, 1], 3), 4)
    yield case("with scores that fall from key to key", large([-1, -1, -1], 3), 4)
    yield case("with queries near 120 and near -120", large([1, -1, 1, -1, -1]), 4)
    query, key, value = large([1, -1, 1])
    key[1::2] *= -1
    yield case("with keys near 120 and near -120 in a tile", (query, key, value), 4)
    query, key = draw.low_query_key(3, 1)
    value = draw.normal(1, 5)
    yield case("with one key whose scores are about -1e12", (query, key, value), 2)
    low = 2.0**42 * query, 2.0**42 * key, value
    yield case("with one key whose scores are about -2e37", low, 2)
    # Less than the whole matrix; 36 kB are a few tiles for each of 96 queries.
    for t, s, block, memory in (
        (144, 144, 24, 78_000),
        (64, 1024, 64, 249_000),
        (96, 96, 16, 36_000),
    ):
        tries = f"with {t} queries and {s} keys in tiles of {block}"
        yield case(tries, inputs(t=t, s=s, d=4, e=3), block, memory)


def pad_to_tiles(x, block):
    """Return x with rows of zeros until every tile is full."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % block))


check_tiled = Exercise(
    tiled,
    tiled_cases,
    stars=3,
    minutes=25,
    section="Tiling: the forward pass of FlashAttention",
    title="tiled attention",
    returns=("output", "lse"),
    library=READY_MADE,
    mistakes={
        "no-rescale": (
            "a new maximum does not rescale both total and output of earlier tiles",
            [
                "(maximum - higher).exp() → torch.ones_like(total)",
                "output * factor[..., None] → output",
            ],
        ),
        "mean-of-tiles": (
            "the tiles' outputs are averaged equally; weight them by their totals",
            "output * factor[..., None] + weights → "
            "output + weights / weights.sum(-1, keepdim=True) ; "
            "output / total[..., None] → output / -(-key.shape[-2] // block)",
        ),
        "wrong-axis": (
            "the weights sum to 1 over the queries; it should be over the keys",
            [
                "weights @ v → weights.sum(-1)[..., None] * (scores.softmax(-2) @ v)",
                "output * factor[..., None] + weights @ → "
                "output + scores.softmax(-2) @ ; "
                "output / total[..., None] → output",
                lambda query, key, value, block: (
                    (query @ key.mT * key.shape[-1] ** -0.5).softmax(-2) @ value,
                    tiled(query, key, value, block)[1],
                ),
            ],
        ),
        "starts-at-zero": (
            "the maximum starts at a finite number; it should start at -inf",
            [f"-torch.inf → {x}" for x in (0.0, -1e4, -1e9, -1e30)],
        ),
        "no-scale": (
            "the scores are not divided by √D",
            "(query * query.shape[-1] ** -0.5) → query",
        ),
        "padding-seen": (
            "keys of zeros that pad the last tile get weight",
            lambda q, k, v, n: tiled(q, pad_to_tiles(k, n), pad_to_tiles(v, n), n),
        ),
    },
    hints=(
        "Which three numbers or rows of a query must stay from tile to tile?",
        "From maximum m to M, total and output are multiplied by exp(m - M).",
    ),
)

AUTOGRAD = {"grad", "backward", "make_dual", "softmax_backward_data"}


def tiled_backward(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    output: Float[Tensor, "*B T E"],
    lse: Float[Tensor, "*B T"],
    upstream: Float[Tensor, "*B T E"],
    block: int,
) -> tuple[Float[Tensor, "*B T D"], Float[Tensor, "*B S D"], Float[Tensor, "*B S E"]]:
    """Return a loss's gradients for query, key and value, tile by tile."""
    scale = query.shape[-1] ** -0.5
    average = (upstream * output).sum(dim=-1, keepdim=True)
    dquery, dkey, dvalue = (torch.zeros_like(x) for x in (query, key, value))
    by_query = query, upstream, lse[..., None], average, dquery
    rows = [x.split(block, dim=-2) for x in by_query]
    columns = [x.split(block, dim=-2) for x in (key, value, dkey, dvalue)]
    for k, v, dk, dv in zip(*columns, strict=True):
        for q, up, z, mean, dq in zip(*rows, strict=True):
            weights = (q * scale @ k.mT - z).exp()
            dscores = weights * (up @ v.mT - mean) * scale
            dq += dscores @ k  # views: what is added here arrives in dquery
            dk += dscores.mT @ q
            dv += weights.mT @ up
    return dquery, dkey, dvalue


def backward_cases(draw):
    def case(tries, given, block, memory=None):
        # In double precision: what is saved should be as precise as it can be.
        saved = tiled(*(x.double() for x in given), block)
        upstream = draw.integers(-3, 3, *given[0].shape[:-1], given[2].shape[-1])
        inputs = *given, *(x.to(given[0]) for x in (*saved, upstream)), block
        return Case(tries, inputs, gradient=False, memory=memory)

    def large(signs, step):
        # In single precision, a logsumexp of 720 would be too coarse.
        return [x.double() for x in draw_large_scores(draw, signs, step, 720, 0.25)]

    inputs = functools.partial(draw_inputs, draw)
    yield case("with one query and one key", inputs(t=1, s=1, d=3, e=2), 4)
    yield case("with one tile", inputs(t=3, s=5), 8)
    yield case("with two tiles of keys", inputs(t=2, s=4), 2)
    yield case("with two tiles of queries", inputs(t=4, s=2), 2)
    ragged = "with lengths that are not multiples of the block"
    yield case(ragged, inputs(t=5, s=7), 3)
    yield case("with a batch of 3 and 2 heads", inputs(3, 2, t=5, s=7), 2)
    yield case("with scores that grow from key to key", large([1] * 5, 1), 4)
    yield case("with queries near 720 and near -720", large([1, -1, 1, -1, -1], 0), 4)
    query, key = draw.low_query_key(3, 1)
    low = "with one key whose scores are about -1e12"
    # Whole numbers: the gradients, which are 0, are exact in any order.
    yield case(low, (query, key, draw.integers(-3, 3, 1, 5).float()), 2)
    long = "with 144 queries and keys in tiles of 24"
    yield case(long, inputs(t=144, s=144, d=4, e=3), 24, 78_000)


check_tiled_backward = Exercise(
    tiled_backward,
    backward_cases,
    stars=3,
    minutes=25,
    section="Recomputation: the backward pass",
    title="tiled backward pass",
    returns=("dquery", "dkey", "dvalue"),
    forbidden=ATTENTION | AUTOGRAD,
    library=(
        *READY_MADE,
        ready.attend_tiled_gradient,
        scaled_dot_product.attend_gradient,
    ),
    mistakes={
        "no-average": (
            "the weighted average, upstream · output, is not subtracted",
            "up @ v.mT - mean → up @ v.mT",
        ),
        "softmax-of-the-tile": (
            "each tile has its own softmax; use exp(score - logsumexp)",
            "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).softmax(-1)",
        ),
        "wrong-axis": (
            "the softmax runs over the queries; use exp(score - logsumexp)",
            [
                "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).softmax(-2)",
                "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT - z).softmax(-2)",
            ],
        ),
        "no-scale": (
            "the factor 1/√D is missing; it belongs to both `dquery` and `dkey`",
            "- mean) * scale → - mean)",
        ),
        "query-overwritten": (
            "each tile of keys overwrites `dquery`; add up over the tiles",
            "dq += → dq[:] =",
        ),
    },
    hints=(
        "Which term of the gradient of a softmax needs all keys, and what equals it?",
        "A tile's weights are exp(scores - lse); that term is upstream · output.",
    ),
)


def tile_counts(B: int, H: int, n: int, D: int, R: int, C: int) -> list[int]:
    """Return five counts of a causal forward kernel in half precision.

    In this order: programs; tiles of scores that all of them compute; bytes read from
    HBM; bytes written to HBM; bytes of registers that one program needs for the
    scores of a tile and for its output.
    """
    programs = tiles = keys = 0
    for first in range(0, n, R):
        last = min(first + R, n)  # the last query attends to this many keys
        visited = -(-last // C)
        programs += 1
        tiles += visited
        keys += min(visited * C, n)
    read = 2 * (n * D + 2 * keys * D)
    written = n * (2 * D + 4)
    heads = B * H
    return [
        heads * programs,
        heads * tiles,
        heads * read,
        heads * written,
        4 * (R * C + R * D),
    ]


def count_cases(draw):
    yield "with one query and one key", 1, 1, 1, 1, 1, 1
    yield "with one tile", draw.whole(2, 3), 5, 8, 16, 8, 8
    yield "with square tiles", 2, draw.whole(3, 5), 24, 16, 4, 4
    yield "with more queries than keys in a tile", 3, 2, 48, 8, 16, 4
    yield "with more keys than queries in a tile", 2, 5, 48, 8, 4, 16
    odd = 2 * draw.whole(20, 39) + 1
    ragged = "with tiles that do not divide the length"
    yield ragged, draw.whole(2, 4), 3, odd, 24, 16, 12
    yield "with 4096 positions", 4, 16, 4096, 64, 128, 64


check_tile_counts = Exercise(
    tile_counts,
    count_cases,
    stars=2,
    minutes=20,
    section="Tiling: the forward pass of FlashAttention",
    title="programs, tiles and bytes of a causal kernel",
    returns=("counts",),
    mistakes={
        "no-causal-mask": (
            "tiles above the diagonal are counted; the kernel skips them",
            "last // C → n // C",
        ),
        "half-of-the-tiles": (
            "half of all tiles are counted; those on the diagonal are computed, too",
            "heads * tiles → heads * -(-n // R) * -(-n // C) // 2",
        ),
        "keys-read-once": (
            "keys and values are counted once; every tile of queries reads them",
            "2 * keys * D → 2 * n * D",
        ),
        "no-logsumexp": (
            "the logsumexp is missing: one number for each query",
            "(2 * D + 4) → 2 * D",
        ),
        "scores-written": (
            "the scores are counted as written; they never leave the registers",
            "(2 * D + 4) → (2 * D + 4 + 2 * n)",
        ),
    },
    hints=("How many keys can the last query of a tile attend to?",),
)

RIGHT, RESCALED, PADDED, BASE, ZERO, WIDTH = range(6)


@dataclass
class TiledAttention:
    """Tiled attention with or without a fault.

    Called with query (T, D), key (S, D), value (S, E) and the number of keys of a
    tile, it returns the output (T, E) and each query's logsumexp (T,).
    """

    built_in: int

    def __call__(self, query, key, value, block):
        """Compute attention, as far as the fault allows."""
        width = (value if self.built_in == WIDTH else query).shape[-1]
        if self.built_in == PADDED:
            key, value = pad_to_tiles(key, block), pad_to_tiles(value, block)
        begin = 0.0 if self.built_in == ZERO else -torch.inf
        maximum = query.new_full((len(query),), begin)
        total = torch.zeros_like(maximum)
        output = query.new_zeros(len(query), value.shape[-1])
        for k, v in zip(key.split(block), value.split(block), strict=True):
            scores = query @ k.T * width**-0.5
            highest = torch.maximum(maximum, scores.amax(-1))
            factor = (maximum - highest).exp()
            weights = (scores - highest[:, None]).exp()
            total = total * factor + weights.sum(-1)
            if self.built_in != RESCALED:
                output = output * factor[:, None]
            output, maximum = output + weights @ v, highest
        lse = maximum + total.log()
        if self.built_in == BASE:
            lse = lse * 1.4426950408889634
        return output / total[:, None], lse


def tiled_fault(attention: Callable, query: Tensor, key: Tensor, value: Tensor) -> int:
    """Return the number of an implementation's fault, 0 if there is none.

    1: the output is not rescaled when the maximum rises. 2: the last tile is padded
    with keys of zeros, which receive weight. 3: the logsumexp is to base 2. 4: the
    running maximum starts at 0. 5: the scores are divided by the root of the value
    width.
    """
    rng = torch.Generator().manual_seed(0)

    def draw(T: int, S: int, D: int, E: int) -> list[Tensor]:
        shapes = (T, D), (S, D), (S, E)
        return [torch.randn(*x, generator=rng) for x in shapes]

    def is_wrong(q: Tensor, k: Tensor, v: Tensor, block: int) -> bool:
        scores = q @ k.T * q.shape[-1] ** -0.5
        output, _ = attention(q, k, v, block)
        return not torch.allclose(output, scores.softmax(-1) @ v, atol=1e-3)

    q, k, v = draw(3, 4, 4, 4)
    exact = (q @ k.T / 2).logsumexp(-1)
    if not torch.allclose(attention(q, k, v, 4)[1], exact, atol=1e-3):
        return 3
    if is_wrong(*draw(3, 4, 4, 9), 4):  # one full tile, another value width
        return 5
    if is_wrong(*draw(3, 5, 4, 4), 8):  # one tile that is not full
        return 2
    far = torch.full((4, 4), 16.0)  # scores of -512
    if is_wrong(far, -far, v, 4):
        return 4
    return int(is_wrong(*draw(3, 32, 4, 4), 4))  # several full tiles


def fault_cases(draw):
    for fault, S in draw.shuffle((i, s) for i in range(6) for s in (7, 8)):
        what = f"that has fault {fault}" if fault else "without a fault"
        tries = f"with an implementation {what}, and {S} keys"
        given = draw_inputs(draw, t=3, s=S, d=4, e=4)
        yield Case(tries, (TiledAttention(fault), *given), gradient=False)


def diagnose_example(attention, query, key, value):
    """Return a diagnosis that tests nothing but the example."""
    scores = query @ key.T * query.shape[-1] ** -0.5
    output, lse = attention(query, key, value, 4)
    if not torch.allclose(lse, scores.logsumexp(-1), atol=1e-3):
        return 3
    return int(not torch.allclose(output, scores.softmax(-1) @ value, atol=1e-3))


check_tiled_fault = Exercise(
    tiled_fault,
    fault_cases,
    stars=3,
    minutes=25,
    section="Pitfalls",
    title="the fault of a tiled attention",
    returns=("fault",),
    forbidden=frozenset(),
    mistakes={
        "example-only": (
            "it tests only the given example, which hides most faults",
            diagnose_example,
        ),
        "one-tile": (
            "it uses only one tile of keys, in which nothing is rescaled",
            "draw(3, 32, 4, 4) → draw(3, 4, 4, 4)",
        ),
        "padding-not-tested": (
            "it never tests a number of keys that the block does not divide",
            "return 2 → pass",
        ),
        "base-not-tested": (
            "it tests only the output; the logsumexp may be wrong as well",
            "return 3 → pass",
        ),
        "positive-scores": (
            "its scores are never all very negative",
            "return 4 → pass",
        ),
        "same-width": (
            "its values are as wide as its keys, which hides a wrong divisor",
            "draw(3, 4, 4, 9) → draw(3, 4, 4, 4)",
        ),
    },
    hints=(
        "Which faults cannot be seen with one full tile, usual scores and E = D?",
        "From that call, change one thing at a time.",
    ),
)


@triton.jit
def softmax_kernel(scores, weights, stride, length, BLOCK: tl.constexpr):
    """Write the softmax of one row of scores."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < length
    at = row * stride + columns
    x = tl.load(scores + at, mask=inside, other=float("-inf"))
    exponentials = tl.exp(x - tl.max(x, 0))
    total = tl.sum(exponentials, 0)
    tl.store(weights + at, exponentials / total, mask=inside)


def launch_softmax(kernel, scores):
    """Launch a program for each row; three numbers lie between two rows."""
    rows, length = scores.shape
    given, weights = torch.zeros(2, rows, length + 3)[..., :length]
    given.copy_(scores)
    block = 1 << (length - 1).bit_length()
    kernel[rows,](given, weights, length + 3, length, BLOCK=block)
    return weights


def softmax_cases(draw):
    def case(tries, scores):
        return Case(tries, (scores,), gradient=False)

    yield case("with one row that fills the block", draw.normal(1, 8))
    yield case("with 3 rows that fill the block", draw.normal(3, 8))
    yield case("with a row that is shorter than the block", draw.normal(1, 5))
    yield case("with 3 rows that are shorter", draw.normal(3, draw.whole(9, 14)))
    yield case("with scores near -120", draw.normal(2, 6) - 120)
    yield case("with scores near 120", draw.normal(2, 7) + 120)


check_softmax_kernel = KernelExercise(
    softmax_kernel,
    softmax_cases,
    launch=launch_softmax,
    stars=2,
    minutes=20,
    section="A Triton kernel, and the papers' names",
    title="a softmax row in Triton",
    returns=("weights",),
    forbidden=ATTENTION | {"softmax"},
    mistakes={
        "unmasked-load": (
            "the load has no mask, so it reads beyond the end of the row",
            'scores + at, mask=inside, other=float("-inf") → scores + at',
        ),
        "unmasked-store": (
            "the store has no mask, so it writes beyond the end of the row",
            "/ total, mask=inside → / total",
        ),
        "padding-counted": (
            "columns beyond the end are loaded as 0, and exp(0 - maximum) counts in "
            "the sum; load -inf there",
            [
                'other=float("-inf") → other=0.0',
                'other=float("-inf") → other=0.0 ; '
                "tl.max(x, 0) → tl.max(tl.where(inside, x, -1e30), 0)",
            ],
        ),
        "base-2": (
            "powers of 2 are taken for powers of e; multiply by log2(e) before tl.exp2",
            "tl.exp(x → tl.exp2(x",
        ),
        "no-shift": (
            "the maximum is not subtracted, so that exponentials overflow",
            "x - tl.max(x, 0) → x",
        ),
        "stride-ignored": (
            "rows are taken to follow one another; row r begins at r * stride",
            "row * stride → row * length",
        ),
        "first-row": (
            "every program computes the first row; row r begins at r * stride",
            "row * stride + columns → columns",
        ),
    },
    hints=(
        "What does tl.load return where the mask is False, unless you say?",
        "With other=-inf, a column beyond the end is never the maximum, and adds 0.",
    ),
)


@triton.jit
def forward_kernel(
    query,
    key,
    value,
    output,
    scale,
    T: tl.constexpr,
    S: tl.constexpr,
    D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Write the outputs of one tile of queries."""
    rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    width = tl.arange(0, D)
    own = rows[:, None] * D + width[None, :]
    q = tl.load(query + own, mask=rows[:, None] < T, other=0.0)
    maximum = tl.full((BLOCK_T,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_T,), tl.float32)
    sums = tl.zeros((BLOCK_T, D), tl.float32)
    for start in range(0, S, BLOCK_S):
        columns = start + tl.arange(0, BLOCK_S)
        at = columns[:, None] * D + width[None, :]
        k = tl.load(key + at, mask=columns[:, None] < S, other=0.0)
        v = tl.load(value + at, mask=columns[:, None] < S, other=0.0)
        scores = tl.dot(q, k.T) * scale
        scores = tl.where(columns[None, :] < S, scores, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1))
        factor = tl.exp(maximum - highest)
        weights = tl.exp(scores - highest[:, None])
        total = total * factor + tl.sum(weights, 1)
        sums = sums * factor[:, None] + tl.dot(weights, v)
        maximum = highest
    tl.store(output + own, sums / total[:, None], mask=rows[:, None] < T)


def launch_forward(kernel, query, key, value, BLOCK_T, BLOCK_S):
    """Launch a program for each tile of queries."""
    (T, D), output = query.shape, torch.zeros_like(query)
    sizes = T, len(key), D, BLOCK_T, BLOCK_S
    kernel[-(-T // BLOCK_T),](query, key, value, output, D**-0.5, *sizes)
    return output


def forward_cases(draw):
    def case(tries, given, block_t=16, block_s=16):
        return Case(tries, (*given, block_t, block_s), gradient=False)

    def shifted(t, s, sign, low=0.0, step=0.0):
        """Return inputs whose scores lie near a number that grows with the key."""
        query, key, value = inputs(t=t, s=s)
        scores = low + step * torch.arange(s)
        return sign * (16 + 0.1 * query), (scores[:, None] + key) / 16, value

    inputs = functools.partial(draw_inputs, draw, d=16, e=16)
    yield case("with one tile of keys", inputs(t=16, s=16))
    yield case("with two tiles of keys", inputs(t=16, s=32))
    yield case("with fewer keys than a tile", inputs(t=16, s=draw.whole(5, 12)))
    yield case("with lengths that tiles do not divide", inputs(t=19, s=37), 16, 32)
    yield case("with scores that grow from key to key", shifted(5, 48, 1, step=3))
    yield case("with scores that fall from key to key", shifted(5, 48, -1, step=3))
    yield case("with scores near -120", shifted(5, 21, -1, 120))


check_forward_kernel = KernelExercise(
    forward_kernel,
    forward_cases,
    launch=launch_forward,
    stars=3,
    minutes=30,
    section="A Triton kernel, and the papers' names",
    title="the inner loop of FlashAttention in Triton",
    returns=("output",),
    mistakes={
        "unmasked-load": (
            "a load has no mask, so the last tile reads beyond the last key",
            "value + at, mask=columns[:, None] < S, other=0.0 → value + at",
        ),
        "padding-counted": (
            "keys beyond the last have score 0 and get weight; set it to -inf",
            [
                'tl.where(columns[None, :] < S, scores, float("-inf")) → scores',
                'tl.where(columns[None, :] < S, scores, float("-inf")) → scores ; '
                "tl.dot(weights, v) → "
                "tl.dot(tl.where(columns[None, :] < S, weights, 0.0), v)",
            ],
        ),
        "base-2": (
            "powers of 2 are taken for powers of e; include log2(e) in the scale",
            "tl.exp(maximum → tl.exp2(maximum ; tl.exp(scores → tl.exp2(scores",
        ),
        "output-not-rescaled": (
            "a new maximum does not rescale what was summed for the output",
            [
                "sums * factor[:, None] + → sums +",
                "sums * factor[:, None] + → sums + ; total * factor + → total +",
            ],
        ),
        "total-not-rescaled": (
            "a new maximum does not rescale the total",
            "total * factor + → total +",
        ),
        "no-shift": (
            "the maximum is not subtracted, so that exponentials overflow",
            "maximum - highest → total * 0.0 ; scores - highest[:, None] → scores",
        ),
        "wrong-axis": (
            "the sum runs over the queries; the keys are axis 1",
            "tl.sum(weights, 1) → tl.sum(weights, 0)",
        ),
    },
    hints=(
        "Which two of the three running numbers does a new maximum change?",
        "The loads are as for `k`; after `tl.where`, it is exercise 1 in other names.",
    ),
)
