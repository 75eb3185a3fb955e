"""The rest of a Transformer block: its linear layers, beside attention.

Source: the layers: Vaswani et al. (2017), sections 3.2.2 and 3.3,
    https://arxiv.org/abs/1706.03762; the gated feed-forward layer: Shazeer
    (2020), section 2, equation 6, https://arxiv.org/abs/2002.05202
Axes: B sequences, T new positions, S positions of keys, C model width,
    H heads, G groups (key-value heads), D width of a head, L layers
"""

from dataclasses import dataclass

from attnbook.profiling.sizes import (
    Count,
    Sizes,
    add_counts,
    require_sizes,
)
from attnbook.profiling.steps import count_steps


@dataclass(frozen=True)
class Block:
    """The sizes of a Transformer's blocks.

    Attributes:
        C: width of the model.
        H: heads of queries.
        G: heads of keys and values.
        D: width of a head.
        hidden: width inside the feed-forward layer.
        gated: whether the feed-forward layer has a third matrix, its gate.
        L: blocks.
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
