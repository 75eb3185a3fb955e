"""Operations and bytes of attention, step by step, and of the block around it.

Counted as chapter 4's `attend` runs without a mask: each step reads its inputs
from memory once and writes its result once. That is what happens as soon as a
result is too large for the cache. A matrix product of (m, k) and (k, n) takes
2mkn operations. Of a softmax, the maximum, subtraction, exponential, sum and
division count as one operation a score each; others count otherwise, and
PyTorch's own counter counts products only.

Source: the standard implementation: Dao et al. (2022), section 2.2, algorithm
    0, https://arxiv.org/abs/2205.14135; its backward pass: algorithm 3. The
    block: Vaswani et al. (2017), sections 3.2.2 and 3.3,
    https://arxiv.org/abs/1706.03762; the gated feed-forward layer: Shazeer
    (2020), section 2, equation 6, https://arxiv.org/abs/2002.05202
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values, R rows of a tile, C model width, L layers
"""

from dataclasses import dataclass

from attnbook.profiling.sizes import Count, Sizes, add_counts, require_sizes

SOFTMAX_OPERATIONS, SOFTMAX_BACKWARD_OPERATIONS = 5, 4


def count_steps(sizes: Sizes) -> dict[str, Count]:
    """Return each step of `attend` in the forward pass."""
    n = sizes.B * sizes.H * sizes.T
    s = sizes
    return {
        "scale": Count(n * s.D, s.query, s.query),
        "scores": Count(2 * n * s.S * s.D, s.query + s.key, s.scores),
        "softmax": Count(SOFTMAX_OPERATIONS * n * s.S, s.scores, s.scores),
        "values": Count(2 * n * s.S * s.E, s.scores + s.value, s.output),
    }


def count_backward_steps(sizes: Sizes) -> dict[str, Count]:
    """Return each step of the backward pass, with saved weights."""
    n = sizes.B * sizes.H * sizes.T
    s = sizes
    to_values, to_keys = 2 * n * s.S * s.E, 2 * n * s.S * s.D
    return {
        "dvalue": Count(to_values, s.scores + s.output, s.value),
        "dweights": Count(to_values, s.output + s.value, s.scores),
        "softmax": Count(SOFTMAX_BACKWARD_OPERATIONS * n * s.S, 2 * s.scores, s.scores),
        "dquery": Count(to_keys, s.scores + s.key, s.query),
        "dkey": Count(to_keys, s.scores + s.query, s.key),
        "scale": Count(n * s.D, s.query, s.query),
    }


def count_fused(sizes: Sizes) -> Count:
    """Return attention in one step that never writes its scores to memory.

    Operations as before; bytes of inputs and output. No kernel can move less.
    """
    pairs = sizes.B * sizes.H * sizes.T * sizes.S
    scaled = sizes.B * sizes.H * sizes.T * sizes.D
    products = 2 * pairs * (sizes.D + sizes.E)
    inputs = sizes.query + sizes.key + sizes.value
    return Count(products + SOFTMAX_OPERATIONS * pairs + scaled, inputs, sizes.output)


def count_fused_backward(sizes: Sizes) -> Count:
    """Return the backward pass in one step, which recomputes the scores.

    Five products instead of four. It reads inputs, output, the gradient on
    the output, and one number a query: the logarithm of the softmax's sum.
    """
    pairs = sizes.B * sizes.H * sizes.T * sizes.S
    products = 2 * pairs * (3 * sizes.D + 2 * sizes.E)
    inputs = sizes.query + sizes.key + sizes.value
    sums = sizes.B * sizes.H * sizes.T * 4
    return Count(
        products + (SOFTMAX_OPERATIONS + SOFTMAX_BACKWARD_OPERATIONS) * pairs,
        inputs + 2 * sizes.output + sums,
        inputs,
    )


def count_tiled(sizes: Sizes, rows: int) -> Count:
    """Return what a kernel moves that holds `rows` queries at a time.

    Every tile of queries reads all keys and values anew: the smaller the fast
    memory, the more often. Each head of a group reads them separately.
    """
    if rows < 1:
        raise ValueError(f"a tile has at least 1 row, not {rows}")
    times = -(-sizes.T // rows) * (sizes.H // sizes.G)
    once = count_fused(sizes)
    again = times * (sizes.key + sizes.value)
    return Count(once.flops, sizes.query + again, once.written)


@dataclass(frozen=True)
class Block:
    """The sizes of a Transformer of L blocks.

    The feed-forward layer is `hidden` wide inside; if `gated`, it has a third
    matrix, its gate.
    """

    C: int
    H: int
    G: int
    D: int
    hidden: int
    gated: bool
    L: int

    def __post_init__(self):
        sizes = {n: x for n, x in vars(self).items() if n != "gated"}
        require_sizes(**sizes)

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """Return the width into and out of each linear layer."""
        queries, keys = self.H * self.D, self.G * self.D
        made = {
            "query": (self.C, queries),
            "key": (self.C, keys),
            "value": (self.C, keys),
            "output": (queries, self.C),
            "up": (self.C, self.hidden),
            "down": (self.hidden, self.C),
        }
        return made | ({"gate": made["up"]} if self.gated else {})

    @property
    def weights(self) -> int:
        """Return the weights of one block's linear layers."""
        return sum(a * b for a, b in self.layers.values())


def count_linear(rows: int, into: int, out: int, itemsize: int = 4) -> Count:
    """Return a linear layer without bias on some rows."""
    return Count(
        2 * rows * into * out,
        (rows * into + into * out) * itemsize,
        rows * out * itemsize,
    )


def get_attention_sizes(
    block: Block, B: int, T: int, S: int, itemsize: int = 4
) -> Sizes:
    """Return the sizes of a block's attention."""
    return Sizes(B, block.H, T, S, block.D, G=block.G, itemsize=itemsize)


def count_block_parts(
    block: Block, B: int, T: int, S: int, itemsize: int = 4
) -> dict[str, Count]:
    """Return one block's parts, in the forward pass: T queries, S keys.

    Norms, the activation and the sums of the residual stream are left out:
    they grow with T and C alone.
    """
    made = {
        name: count_linear(B * T, *widths, itemsize)
        for name, widths in block.layers.items()
    }
    projections = ("query", "key", "value", "output")
    steps = count_steps(get_attention_sizes(block, B, T, S, itemsize))
    return {
        "projections": add_counts(made[name] for name in projections),
        "attention": add_counts(steps.values()),
        "feed-forward": add_counts(
            count for name, count in made.items() if name not in projections
        ),
    }


def find_crossover_length(block: Block) -> float:
    """Return the length at which attention's products equal all others.

    A linear layer takes 2 operations a weight and position, attention 4 · D a
    head and pair of positions.
    """
    return 2 * block.weights / (4 * block.H * block.D)


def count_cache_bytes(block: Block, B: int, S: int, itemsize: int = 4) -> int:
    """Return the bytes of all layers' keys and values of S positions."""
    return 2 * block.L * B * block.G * S * block.D * itemsize


def count_decoding_step(block: Block, B: int, S: int, itemsize: int = 4) -> Count:
    """Return what a block does for one new position of each sequence.

    Its weights are read once for all B sequences; each sequence's keys and
    values once for itself.
    """
    return add_counts(count_block_parts(block, B, 1, S, itemsize).values())
