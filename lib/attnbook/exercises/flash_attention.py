"""The exercises of the chapter on FlashAttention.

Source: tiles: Dao et al. (2022), section 3.1, algorithms 1 and 4,
    https://arxiv.org/abs/2205.14135; the order of the loops, the logsumexp and atomic
    additions: Dao (2023), sections 3.1 and 3.2, https://arxiv.org/abs/2307.08691
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of values, R
    queries and C keys of a tile, n positions or terms
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnbook import flash
from attnbook.attention import gradient, query_chunks, scaled_dot_product
from attnbook.attention import tiled as ready
from attnbook.exercises.declare import ATTENTION, Case, Exercise

# The library's attention, which an answer may not call.
READY_MADE = (
    flash.flash_attention,
    query_chunks.attend_in_query_chunks,
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
    """Return inputs whose scores for 11 keys lie near ± a size, without rounding.

    Args:
        draw: the source of random numbers.
        signs: of the scores of each query.
        step: of how many parts a key's scores are larger than those before.
        size: divisible by 20.
        part: of which the keys' differences are multiples; a power of 2.
    """
    along = draw.integers(0, 1, 16) * 2.0 - 1
    key = 5 * along.repeat(11, 1)
    key[:, :4] += part * draw.integers(-1, 1, 11, 4)
    key[:, 0] += part * step * torch.arange(11) * along[0]
    return size / 20 * along * torch.tensor(signs)[:, None], key, draw.normal(11, 5)


def tiled_cases(draw):
    def case(tries, *lead, block, **sizes):
        return Case(tries, (*draw_inputs(draw, *lead, **sizes), block), gradient=False)

    def large(tries, signs, step=0):
        return Case(tries, (*draw_large_scores(draw, signs, step), 4), gradient=False)

    def one_key(tries, q, k):
        query, key = draw.low_query_key(3, 1)
        given = q * query, k * key, draw.normal(1, 5), 2
        return Case(tries, given, gradient=False)

    def long(tries, t, s, block, memory):
        given = *draw_inputs(draw, t=t, s=s, d=4, e=3), block
        return Case(tries, given, gradient=False, memory=memory)

    yield case("with one query and one key", t=1, s=1, d=3, e=2, block=4)
    yield case("with a block larger than everything", t=3, s=5, block=8)
    yield case("with two tiles of keys", t=2, s=4, block=2)
    yield case("with all sizes equal", t=4, s=4, d=4, e=4, block=2)
    ragged = "with lengths that are not multiples of the block"
    yield case(ragged, t=5, s=7, block=3)
    yield case("with more queries than keys", t=11, s=5, block=4)
    yield case("with tiles of one score", t=2, s=3, block=1)
    yield case("with a batch of 3 and 2 heads", 3, 2, t=5, s=7, block=2)
    yield large("with scores that grow from key to key", [1, 1, 1], 3)
    yield large("with scores that fall from key to key", [-1, -1, -1], 3)
    yield large("with queries near 120 and near -120", [1, -1, 1, -1, -1])
    query, key, value = draw_large_scores(draw, [1, -1, 1])
    key[1::2] *= -1
    tries = "with keys near 120 and near -120 in a tile"
    yield Case(tries, (query, key, value, 4), gradient=False)
    yield one_key("with one key whose scores are about 1e12", 1, -1)
    yield one_key("with one key whose scores are about -1e12", 1, 1)
    yield one_key("with one key whose scores are about -2e37", 2.0**42, 2.0**42)
    # Less than the whole matrix; 36 kB are a few tiles for each of 96 queries.
    yield long("with 144 queries and keys in tiles of 24", 144, 144, 24, 78_000)
    yield long("with 64 queries and 1024 keys in tiles of 64", 64, 1024, 64, 249_000)
    yield long("with 96 queries and keys in tiles of 16", 96, 96, 16, 36_000)


def combine_tiles(normalize, weigh):
    """Return attention with a softmax of its own in each tile.

    Args:
        normalize: a tile's weights, from its scores.
        weigh: each tile's share of the output, from their logsumexps.
    """

    def answer(query, key, value, block):
        outputs, sums = [], []
        for q in (query * query.shape[-1] ** -0.5).split(block, -2):
            scores = [q @ k.mT for k in key.split(block, -2)]
            lse = torch.stack([x.logsumexp(-1) for x in scores])
            tiles = zip(scores, value.split(block, -2), weigh(lse), strict=True)
            outputs.append(sum(normalize(x) @ v * w[..., None] for x, v, w in tiles))
            sums.append(lse.logsumexp(0))
        return torch.cat(outputs, -2), torch.cat(sums, -1)

    return answer


def sum_exponentials(query, key, value, block):
    """Add up exponentials without a shift, in double precision."""
    outputs, sums = [], []
    for q in (query.double() * query.shape[-1] ** -0.5).split(block, -2):
        output = total = 0.0
        for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
            weights = (q @ k.double().mT).exp()
            output = output + weights @ v.double()
            total = total + weights.sum(-1)
        outputs.append(output / total[..., None])
        sums.append(total.log())
    return torch.cat(outputs, -2).to(query), torch.cat(sums, -1).to(query)


def compute_all_scores(query, key, value, block):
    """Make all scores, as the standard version does."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def compute_chunks(query, key, value, block):
    """Divide only the queries into tiles."""
    found = [compute_all_scores(q, key, value, block) for q in query.split(block, -2)]
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


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
            "when the maximum grows, neither the total nor the output of the previous "
            "tiles is rescaled",
            "(maximum - higher).exp() → torch.ones_like(total)",
        ),
        "output-not-rescaled": (
            "the total is rescaled to the new maximum, but the output is not",
            "output * factor[..., None] → output",
        ),
        "rescale-inverted": (
            "the previous sums are multiplied by exp(new - old); the factor should be "
            "exp(old - new), which is at most 1",
            "(maximum - higher).exp() "
            "→ (higher - maximum).nan_to_num(posinf=0.0).exp()",
        ),
        "mean-of-tiles": (
            "each tile has its own softmax, and the tiles' outputs are averaged "
            "equally; they should be weighted by their totals",
            combine_tiles(
                lambda x: x.softmax(-1), lambda z: torch.ones_like(z) / len(z)
            ),
        ),
        "wrong-axis": (
            "the weights sum to 1 over the queries; they should sum to 1 over the "
            "keys of each query",
            [
                combine_tiles(lambda x: x.softmax(-2), lambda z: z.softmax(0)),
                combine_tiles(lambda x: x.softmax(-2), torch.ones_like),
                lambda query, key, value, block: (
                    (query @ key.mT * key.shape[-1] ** -0.5).softmax(-2) @ value,
                    compute_all_scores(query, key, value, block)[1],
                ),
            ],
        ),
        "no-shift": (
            "the exponential is applied to the scores without a shift, so it "
            "overflows or underflows",
            [
                "(scores - higher[..., None]).exp() → scores.exp() ; "
                "(maximum - higher).exp() → torch.ones_like(total) ; "
                "maximum + total.log() → total.log()",
                sum_exponentials,
            ],
        ),
        "starts-at-zero": (
            "the maximum starts at 0 or another finite number, so all weights of a "
            "row of lower scores underflow to 0; it should start at -inf",
            [f"-torch.inf → {x}" for x in (0.0, -1e4, -1e6, -1e9, -1e30)],
        ),
        "no-scale": (
            "the scores are not divided by √D",
            "(query * query.shape[-1] ** -0.5) → query",
        ),
        "scaled-by-value-width": (
            "the scores are divided by √E, the root of the value width; they should "
            "be divided by √D",
            "query.shape → value.shape",
        ),
        "padding-seen": (
            "the last tile of keys is padded with zeros, and a key of zeros has the "
            "score 0, which gets weight",
            lambda query, key, value, block: tiled(
                query, pad_to_tiles(key, block), pad_to_tiles(value, block), block
            ),
        ),
        "lse-without-maximum": (
            "it returns the logarithm of the shifted total; the maximum must be added",
            "maximum + total.log() → total.log()",
        ),
        "whole-matrix": (
            "it holds the scores of all keys in memory, or a tensor of that size; one "
            "tile is enough",
            [compute_all_scores, compute_chunks],
        ),
    },
    hints=(
        "Which three numbers or rows of a query must stay from tile to tile?",
        "When the maximum grows from m to M, the total and the output of the previous "
        "tiles are both multiplied by exp(m - M).",
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
    def complete(tries, given, block, memory=None):
        # In double precision: what is saved should be as precise as it can be.
        saved = tiled(*(x.double() for x in given), block)
        upstream = draw.integers(-3, 3, *given[0].shape[:-1], given[2].shape[-1])
        inputs = *given, *(x.to(given[0]) for x in (*saved, upstream)), block
        return Case(tries, inputs, gradient=False, memory=memory)

    def case(tries, *lead, block, memory=None, **sizes):
        return complete(tries, draw_inputs(draw, *lead, **sizes), block, memory)

    def large(tries, signs, step):
        # In single precision, a logsumexp of 720 would be too coarse.
        found = draw_large_scores(draw, signs, step, 720, 0.25)
        return complete(tries, [x.double() for x in found], 4)

    yield case("with one query and one key", t=1, s=1, d=3, e=2, block=4)
    yield case("with one tile", t=3, s=5, block=8)
    yield case("with two tiles of keys", t=2, s=4, block=2)
    yield case("with two tiles of queries", t=4, s=2, block=2)
    yield case("with all sizes equal", t=4, s=4, d=4, e=4, block=2)
    ragged = "with lengths that are not multiples of the block"
    yield case(ragged, t=5, s=7, block=3)
    yield case("with more queries than keys", t=11, s=5, block=4)
    yield case("with tiles of one score", t=2, s=3, block=1)
    yield case("with a batch of 3 and 2 heads", 3, 2, t=5, s=7, block=2)
    yield large("with scores that grow from key to key", [1, 1, 1, 1, 1], 1)
    yield large("with queries near 720 and near -720", [1, -1, 1, -1, -1], 0)
    query, key = draw.low_query_key(3, 1)
    low = "with one key whose scores are about -1e12"
    # Whole numbers: the gradients, which are 0, are exact in any order.
    yield complete(low, (query, key, draw.integers(-3, 3, 1, 5).float()), 2)
    long = "with 144 queries and keys in tiles of 24"
    yield case(long, t=144, s=144, d=4, e=3, block=24, memory=78_000)


def compute_all_weights(query, key, value, output, lse, upstream, block):
    """Make all weights, as the standard version does."""
    whole = max(query.shape[-2], key.shape[-2])
    return tiled_backward(query, key, value, output, lse, upstream, whole)


check_tiled_backward = Exercise(
    tiled_backward,
    backward_cases,
    stars=3,
    minutes=25,
    section="Recomputation: the backward pass",
    title="tiled backward pass",
    returns=("dquery", "dkey", "dvalue"),
    forbidden=ATTENTION | AUTOGRAD,
    library=(*READY_MADE, ready.attend_tiled_gradient, gradient.attend_gradient),
    mistakes={
        "no-average": (
            "the weighted average of the gradients, upstream · output, is not "
            "subtracted",
            "up @ v.mT - mean → up @ v.mT",
        ),
        "average-of-the-tile": (
            "the average is taken over the keys of one tile; it should run over all "
            "keys, and then equals upstream · output",
            "- mean) → - (weights * (up @ v.mT)).sum(-1, keepdim=True))",
        ),
        "softmax-of-the-tile": (
            "each tile has its own softmax; a weight should be exp(score - "
            "logsumexp), with the logsumexp over all keys",
            "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).softmax(-1)",
        ),
        "wrong-axis": (
            "the softmax runs over the queries; a weight should be exp(score - "
            "logsumexp), with the logsumexp over all keys",
            [
                "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).softmax(-2)",
                "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT - z).softmax(-2)",
            ],
        ),
        "no-shift": (
            "it computes exp(score) / exp(logsumexp), which overflows; subtract "
            "before the exponential",
            "(q * scale @ k.mT - z).exp() → (q * scale @ k.mT).exp() / z.exp()",
        ),
        "scores-unscaled": (
            "the scores are recomputed without 1/√D, but the logsumexp is that of the "
            "scaled scores",
            "q * scale @ → q @",
        ),
        "no-scale": (
            "the gradients lack the factor 1/√D, which belongs to both `dquery` and "
            "`dkey`",
            "- mean) * scale → - mean)",
        ),
        "key-unscaled": (
            "`dquery` is scaled, but `dkey` is not; the factor 1/√D belongs to both",
            "dscores.mT @ q → dscores.mT @ q / scale",
        ),
        "query-overwritten": (
            "each tile of keys overwrites `dquery`; it should be added up over the "
            "tiles",
            "dq += → dq[:] =",
        ),
        "whole-matrix": (
            "it holds the whole weight matrix in memory, or a tensor of that size; "
            "one tile is enough",
            compute_all_weights,
        ),
    },
    hints=(
        "Which term of the gradient of a softmax needs all keys, and what equals it?",
        "The weights of a tile are exp(scores - lse), and the gradients of the scores "
        "are weights · (upstream · value - upstream · output).",
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
            "the tiles above the diagonal are counted as well; no query can attend to "
            "any of their keys, so the kernel skips them",
            "last // C → n // C",
        ),
        "half-of-the-tiles": (
            "half of all tiles are counted; those on the diagonal are computed too, "
            "although half of their scores are masked out",
            "heads * tiles → heads * -(-n // R) * -(-n // C) // 2",
        ),
        "keys-read-once": (
            "keys and values are counted once; every tile of queries reads them again",
            "2 * keys * D → 2 * n * D",
        ),
        "queries-read-again": (
            "the queries are counted once for every tile; a program loads its queries "
            "once",
            "heads * read → heads * (read + 2 * R * D * (tiles - programs))",
        ),
        "no-logsumexp": (
            "the logsumexp is missing: one number for each query",
            "(2 * D + 4) → 2 * D",
        ),
        "scores-written": (
            "the scores are counted as written; they never leave the registers",
            "(2 * D + 4) → (2 * D + 4 + 2 * n)",
        ),
        "output-not-in-registers": (
            "the output is missing: it stays in registers until all tiles of keys are "
            "done",
            "(R * C + R * D) → (R * C)",
        ),
    },
    hints=(
        "How many keys can the last query of a tile attend to, and how many tiles of "
        "keys are that?",
        "Loop over the tiles of queries: each visits ⌈last / C⌉ tiles of keys, and "
        "loads at most n rows.",
    ),
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
            "it tests only the given example, which hides most faults; design inputs "
            "of your own",
            diagnose_example,
        ),
        "one-tile": (
            "it uses only one tile of keys, in which nothing is rescaled",
            "draw(3, 32, 4, 4) → draw(3, 4, 4, 4)",
        ),
        "padding-not-tested": (
            "it does not test a number of keys that is not a multiple of the block",
            "return 2 → pass",
        ),
        "base-not-tested": (
            "it tests only the output; the logsumexp may be wrong as well",
            "return 3 → pass",
        ),
        "positive-scores": (
            "it does not test scores that are all very negative, at which a maximum "
            "of 0 makes every exponential underflow",
            "return 4 → pass",
        ),
        "same-width": (
            "its values are as wide as its keys, so the division by the wrong width "
            "cannot be seen",
            "draw(3, 4, 4, 9) → draw(3, 4, 4, 4)",
        ),
        "several-tiles-first": (
            "it tests several tiles with an incomplete last one, so it takes padding "
            "for an output that is not rescaled; change one thing at a time",
            "return 2 → return 1",
        ),
    },
    hints=(
        "Which faults cannot be seen with one full tile, usual scores and E = D?",
        "Leave that call as it is but for one thing at a time: the width of the "
        "values, the number of keys, the sign of the scores, the number of tiles.",
    ),
)

EQUAL, ORDER, RACE, DROPOUT = range(4)


@dataclass
class Accumulator:
    """Adds up the contributions of n programs, for instance to a gradient.

    Called with terms (n, D) and the number of a run, it returns their sum (D,) as
    this run computes it.

    Attributes:
        built_in: the number of its kind in `run_difference`.
        seed: of what differs from run to run.
    """

    built_in: int
    seed: int

    def __call__(self, terms, run):
        """Return the sum of the terms."""
        rng = torch.Generator().manual_seed(1000 * self.seed + run)
        n = len(terms)
        order = torch.arange(n)
        if self.built_in in (ORDER, RACE):
            order = torch.randperm(n, generator=rng)
        if self.built_in == RACE:  # some additions are overwritten
            lost = 1 + int(torch.randint(max(1, n // 4), (), generator=rng))
            order = order[lost:]
        if self.built_in == DROPOUT:
            kept = torch.rand(n, generator=rng) >= 0.1
            terms = terms * kept[:, None] / 0.9
        total = torch.zeros_like(terms[0])
        for i in order.tolist():
            total = total + terms[i]
        return total


def run_difference(
    accumulators: tuple[Callable, ...], terms: Float[Tensor, "n D"]
) -> list[int]:
    """Return, for each accumulator, why two of its runs differ.

    0: they do not differ. 1: the terms are added in another order. 2: terms are lost,
    because two programs write to one place at the same time. 3: dropout with
    probability 0.1 is left on.
    """
    n, rng, found = len(terms), torch.Generator().manual_seed(0), []
    # Terms of very different size: rounding depends on the order.
    size = 10.0 ** torch.randint(-3, 4, (n, 16), generator=rng)
    rough = size * torch.randn(n, 16, generator=rng)
    for accumulate in accumulators:
        # Small integers: their sum has no rounding error in any order.
        ones = [accumulate(torch.ones(n, 1), i).item() for i in range(8)]
        if any(x != n for x in ones):
            found.append(2 if all(x == int(x) for x in ones) else 3)
            continue
        first, *others = (accumulate(rough, i) for i in range(8))
        found.append(int(any(not torch.equal(first, x) for x in others)))
    return found


def difference_cases(draw):
    what = {
        EQUAL: "with an accumulator whose runs do not differ",
        ORDER: "with additions in another order",
        RACE: "with terms that are lost",
        DROPOUT: "with dropout",
    }
    examples = {
        "normally distributed numbers": draw.normal(12, 3),
        "zeros": torch.zeros(16, 3),
        "ones": torch.ones(20, 3),
    }
    mixed = draw.shuffle(range(4))
    calls = [(words, [kind]) for kind, words in what.items()]
    calls += [("with several accumulators", x) for x in (mixed, mixed[1:] + mixed[:1])]
    for nth, (words, kinds) in enumerate(calls):
        name, terms = [*examples.items()][nth % 3]
        made = tuple(Accumulator(kind, draw.whole(0, 999)) for kind in kinds)
        tries = f"{words}, on {len(terms)} terms; the example has {name}"
        yield Case(tries, (made, terms), gradient=False)


def draw_rough(n):
    """Return normal numbers of very different size."""
    rng = torch.Generator().manual_seed(2)
    size = 10.0 ** torch.randint(-3, 4, (n, 16), generator=rng)
    return size * torch.randn(n, 16, generator=rng)


def judge_by_tolerance(accumulators, terms):
    """Tell the kinds by the size of the difference."""
    found, tried = [], draw_rough(len(terms))
    for accumulate in accumulators:
        sums = torch.stack([accumulate(tried, i) for i in range(8)])
        far = (sums - sums[0]).abs().max()
        found.append(0 if far == 0 else 1 if far < 1e-6 else 2)
    return found


def compare_with_own_sum(accumulators, terms):
    """Compare one run with a sum of one's own, on integers and on others."""
    found = []
    for accumulate in accumulators:
        ones = accumulate(torch.ones(len(terms), 1), 0).item()
        if ones != len(terms):
            found.append(2 if ones == int(ones) else 3)
            continue
        tried = draw_rough(len(terms))
        own = torch.zeros_like(tried[0])
        for term in reversed(tried):
            own = own + term
        found.append(int(not torch.equal(accumulate(tried, 0), own)))
    return found


check_run_difference = Exercise(
    run_difference,
    difference_cases,
    stars=3,
    minutes=20,
    section="A deterministic backward pass: seven products instead of five",
    title="terms that explain why two runs differ",
    returns=("kinds",),
    mistakes={
        "example-only": (
            "it sums only the example; zeros have the same sum in every run, and sums "
            "of normally distributed numbers are rounded, so that the right sum is "
            "not known exactly",
            "torch.ones(n, 1) → terms[:, :1] ; "
            "x != n → x != terms[:, 0].sum().item() ; "
            "accumulate(rough, i) → accumulate(terms, i)",
        ),
        "integers-only": (
            "it does not detect a changed order: compare several runs, on terms whose "
            "sum depends on the order (integers have the same sum in every order)",
            "accumulate(rough, i) → accumulate(torch.ones(n, 4), i)",
        ),
        "rough-only": (
            "it uses only terms whose sums are rounded, so every kind looks like "
            "another order; find terms that have the same sum in every order",
            "any(x != n for x in ones) → False",
        ),
        "tolerance": (
            "it distinguishes the kinds by the size of the difference, which depends "
            "on the terms and not only on the kind",
            judge_by_tolerance,
        ),
        "compared-with-own-sum": (
            "it compares a run with a sum that it computes itself, in another order; "
            "compare runs with each other",
            compare_with_own_sum,
        ),
        "below-means-lost": (
            "it reports lost terms for every wrong sum of ones; dropout multiplies "
            "the terms that it keeps by 1/0.9, so most of its sums are not integers",
            "else 3 → else 2",
        ),
    },
    hints=(
        "For which terms is the sum exact, in whatever order they are added?",
        "A sum of ones shows lost terms and dropout; terms of very different size "
        "show another order.",
    ),
)
