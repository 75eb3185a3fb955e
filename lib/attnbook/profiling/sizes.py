"""What is counted: operations on numbers, and bytes to and from memory.

Source: operational intensity: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Count:
    """Operations (a multiplication and an addition are two), and bytes."""

    flops: int = 0
    read: int = 0
    written: int = 0

    @property
    def bytes(self) -> int:
        """Return the bytes moved, in both directions."""
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """Return the operations for each byte moved; 0 if none moved."""
        return self.flops / self.bytes if self.bytes else 0.0

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.flops + other.flops,
            self.read + other.read,
            self.written + other.written,
        )


def add_counts(counts: Iterable[Count]) -> Count:
    """Return the sum of counts."""
    return sum(counts, Count())


def require_sizes(H: int, G: int, **others: int) -> None:
    """Raise ValueError unless sizes are whole numbers and G divides H."""
    for name, size in {"H": H, "G": G, **others}.items():
        if type(size) is not int or size < 1:
            raise ValueError(f"{name} is {size!r}; sizes are whole numbers from 1")
    if H % G:
        raise ValueError(f"{H} heads do not divide into {G} groups")


@dataclass(frozen=True)
class Sizes:
    """The sizes of one call of attention, and its tensors' bytes.

    E is D and G is H unless given; a number has `itemsize` bytes.
    """

    B: int
    H: int
    T: int
    S: int
    D: int
    E: int = 0
    G: int = 0
    itemsize: int = 4

    def __post_init__(self):
        object.__setattr__(self, "E", self.E or self.D)
        object.__setattr__(self, "G", self.G or self.H)
        require_sizes(**vars(self))

    @property
    def query(self) -> int:
        """Return the bytes of the queries."""
        return self.B * self.H * self.T * self.D * self.itemsize

    @property
    def key(self) -> int:
        """Return the bytes of the keys."""
        return self.B * self.G * self.S * self.D * self.itemsize

    @property
    def value(self) -> int:
        """Return the bytes of the values."""
        return self.B * self.G * self.S * self.E * self.itemsize

    @property
    def scores(self) -> int:
        """Return the bytes of the scores, or of the weights."""
        return self.B * self.H * self.T * self.S * self.itemsize

    @property
    def output(self) -> int:
        """Return the bytes of the output."""
        return self.B * self.H * self.T * self.E * self.itemsize
