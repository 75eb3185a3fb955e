"""The steps of attention, one after the other: operations and bytes of each.

Counted as chapter 4's `attend` runs without a mask: each step reads its inputs
from memory once and writes its result once. That is what happens as soon as a
result is too large for the cache. A matrix product of (m, k) and (k, n) takes
2mkn operations. Of a softmax, the maximum, subtraction, exponential, sum and
division count as one operation a score each; others count otherwise, and
PyTorch's own counter counts products only.

Chapter: chapters/10_cost
Source: the standard implementation: Dao et al. (2022), section 2.2, algorithm
    0, https://arxiv.org/abs/2205.14135; its way back: algorithm 3
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values, R rows of a tile
"""

from attnbook.cost.sizes import Count, Sizes

SOFTMAX, SOFTMAX_BACK = 5, 4


def pairs(T: int, S: int, causal: bool = False) -> int:
    """Return how many pairs of query and key are seen; the last align.

    Raises:
        ValueError: if there is no query or no key.
    """
    if T < 1 or S < 1:
        raise ValueError(f"{T} queries and {S} keys: each must be at least 1")
    if not causal:
        return T * S
    # Query t sees S - T + t + 1 keys, or none.
    first = max(1, S - T + 1)
    return (first + S) * (S - first + 1) // 2


def forward(sizes: Sizes) -> dict[str, Count]:
    """Return each step of `attend`, forwards."""
    n = sizes.B * sizes.H * sizes.T
    s = sizes
    return {
        "scale": Count(n * s.D, s.query, s.query),
        "scores": Count(2 * n * s.S * s.D, s.query + s.key, s.scores),
        "softmax": Count(SOFTMAX * n * s.S, s.scores, s.scores),
        "values": Count(2 * n * s.S * s.E, s.scores + s.value, s.output),
    }


def backward(sizes: Sizes) -> dict[str, Count]:
    """Return each step of the way back, the weights having been kept."""
    n = sizes.B * sizes.H * sizes.T
    s = sizes
    to_values, to_keys = 2 * n * s.S * s.E, 2 * n * s.S * s.D
    return {
        "dvalue": Count(to_values, s.scores + s.output, s.value),
        "dweights": Count(to_values, s.output + s.value, s.scores),
        "softmax": Count(SOFTMAX_BACK * n * s.S, 2 * s.scores, s.scores),
        "dquery": Count(to_keys, s.scores + s.key, s.query),
        "dkey": Count(to_keys, s.scores + s.query, s.key),
        "scale": Count(n * s.D, s.query, s.query),
    }


def fused(sizes: Sizes, causal: bool = False) -> Count:
    """Return attention in one step that never writes its scores down.

    Operations as before, for what is seen; of bytes, only inputs and output.
    No kernel can move less.
    """
    seen = sizes.B * sizes.H * pairs(sizes.T, sizes.S, causal)
    scaled = sizes.B * sizes.H * sizes.T * sizes.D
    products = 2 * seen * (sizes.D + sizes.E)
    inputs = sizes.query + sizes.key + sizes.value
    return Count(products + SOFTMAX * seen + scaled, inputs, sizes.output)


def fused_backward(sizes: Sizes, causal: bool = False) -> Count:
    """Return the way back in one step, which computes the scores once more.

    Five products instead of four. It reads inputs, output, the gradient on
    the output, and one number a query: the logarithm of the softmax's sum.
    """
    seen = sizes.B * sizes.H * pairs(sizes.T, sizes.S, causal)
    products = 2 * seen * (3 * sizes.D + 2 * sizes.E)
    inputs = sizes.query + sizes.key + sizes.value
    sums = sizes.B * sizes.H * sizes.T * 4
    return Count(
        products + (SOFTMAX + SOFTMAX_BACK) * seen,
        inputs + 2 * sizes.output + sums,
        inputs,
    )


def tiled(sizes: Sizes, rows: int) -> Count:
    """Return what a kernel moves that holds `rows` queries at a time.

    Every tile of queries reads all keys and values anew: the smaller the fast
    memory, the more often. Several heads of a group each read them, too.

    Raises:
        ValueError: if a tile has no row.
    """
    if rows < 1:
        raise ValueError(f"a tile has at least 1 row, not {rows}")
    times = -(-sizes.T // rows) * (sizes.H // sizes.G)
    once = fused(sizes)
    again = times * (sizes.key + sizes.value)
    return Count(once.flops, sizes.query + again, once.written)
