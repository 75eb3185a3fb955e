"""Scores that come in chunks and go again: they can be read once.

Axes: T queries, n scores of a chunk
"""

from collections.abc import Iterator, Sequence

from torch import Tensor


class Stream:
    """Chunks that can be read once; a second pass is empty.

    It is a class, not a generator, for it has to be copied and sent to another
    process before it is read.

    Args:
        chunks: what it hands out.
    """

    def __init__(self, chunks: Sequence[Tensor]):
        self.chunks, self.read = tuple(chunks), False

    def __iter__(self) -> Iterator[Tensor]:
        """Yield a copy of each chunk, the first time."""
        first, self.read = not self.read, True
        if first:
            for chunk in self.chunks:
                yield chunk.clone()

    def __repr__(self) -> str:
        return f"a stream of {len(self.chunks)} chunks"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (
            len(self.chunks) == len(other.chunks)
            and all(map(same, self.chunks, other.chunks))
        )

    __hash__ = None


def same(a: Tensor, b: Tensor) -> bool:
    """Tell whether two chunks are equal; no tensor is made for it."""
    return a.dtype == b.dtype and a.shape == b.shape and a.equal(b)
