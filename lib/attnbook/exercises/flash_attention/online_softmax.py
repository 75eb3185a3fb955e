"""Exercise: the softmax's maximum and total, from scores read once.

Source: Milakov and Gimelshein (2018), algorithm 3,
    https://arxiv.org/abs/1805.02867, chunk by chunk
Axes: T queries, n scores of a chunk
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal


def online_softmax(
    chunks: Iterable[Float[Tensor, "T n"]],
) -> tuple[Float[Tensor, " T"], Float[Tensor, " T"]]:
    """Return each row's maximum and its total of exp(score - maximum)."""
    maximum, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        higher = torch.maximum(maximum, chunk.amax(dim=-1))
        # Where nothing was seen yet, -inf - -inf would be NaN.
        shift = higher.masked_fill(higher == -torch.inf, 0.0)
        total = total * (maximum - shift).exp()
        total = total + (chunk - shift[:, None]).exp().sum(dim=-1)
        maximum = higher
    return maximum, total


LONG, ROWS, WIDTH = 24, 64, 16  # a stream that is not to be kept


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One chunk; several; then what hides a mistake; then one too long."""

    def chunks(*widths, t=3, size=2.0):
        return [size * draw_normal(rng, t, n) for n in widths]

    def climbing(step, t=3):
        return [step * i + draw_normal(rng, t, 4) for i in range(5)]

    hidden = chunks(4, 4, 4)
    hidden[0][:] = -torch.inf
    hidden[1][0] = -torch.inf
    hidden[2][2] = -torch.inf
    nothing = chunks(3, 5)
    for x in nothing:
        x[1] = -torch.inf
    apart = chunks(5, 3, 7)
    for x in apart:
        x += torch.tensor([[300.0], [0.0], [-300.0]])
    far = [x + draw_integers(rng, -400, 400, 3, 1) for x in chunks(5, 5, 5, 5)]
    half = ROWS * WIDTH * LONG * 4 // 2
    found = {
        "with one chunk": chunks(5),
        "with two chunks of one score": chunks(1, 1, t=1),
        "with 4 chunks": chunks(5, 5, 5, 5),
        "with chunks of different widths": chunks(7, 2, 5, 1, 3, t=2),
        "with scores that grow from chunk to chunk": climbing(3.0),
        "with scores that fall from chunk to chunk": climbing(-3.0),
        "with scores around 300, 0 and -300 in the three rows": apart,
        "with chunks far apart": far,
        "with masked-out scores": hidden,
        "with a row that is masked out completely": nothing,
        "in double precision": [x.double() for x in chunks(5, 2, 7)],
    }
    cases = [Case(tries, (Stream(given),)) for tries, given in found.items()]
    long = Stream(chunks(*[WIDTH] * LONG, t=ROWS))
    return *cases, Case(
        f"with {LONG} chunks", (long,), memory_limit=half, count_arrays=True
    )


def total_from_logsumexp(chunks):
    """Return the maximum, and the total from a running logsumexp."""
    maximum = lse = torch.tensor(-torch.inf)
    for chunk in chunks:
        maximum = torch.maximum(maximum, chunk.amax(dim=-1))
        lse = torch.logaddexp(lse, chunk.logsumexp(dim=-1))
    shift = maximum.masked_fill(maximum == -torch.inf, 0.0)
    return maximum, (lse - shift).exp()


def read_twice(chunks):
    """Read for the maximum, then read again for the total."""
    top = torch.stack([chunk.amax(-1) for chunk in chunks]).amax(0)
    low, total = top.masked_fill(top == -torch.inf, 0.0), torch.zeros_like(top)
    for chunk in chunks:
        total = total + (chunk - low[:, None]).exp().sum(-1)
    return top, total


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
        rows, width = self.chunks[0].shape
        equal = all(x.shape[1] == width for x in self.chunks)
        each = f"({rows}, {width})" if equal else f"of {rows} rows"
        count = len(self.chunks)
        return f"{count} chunk{'s' * (count > 1)} {each}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (
            len(self.chunks) == len(other.chunks)
            and all(map(is_same_chunk, self.chunks, other.chunks))
        )

    # `object` declares it as a method.
    __hash__ = None  # type: ignore[assignment]


def is_same_chunk(a: Tensor, b: Tensor) -> bool:
    """Tell whether two chunks are equal; no tensor is made for it."""
    return a.dtype == b.dtype and a.shape == b.shape and a.equal(b)


check_online_softmax = Exercise(
    title="online softmax",
    stars=1,
    minutes=10,
    section="Online softmax",
    solution=online_softmax,
    returns=("maximum", "total"),
    draw=draw,
    other_solutions=(total_from_logsumexp,),
    allowed="Everything is allowed but keeping the chunks.",
    mistakes=(
        Mistake(
            "no-rescale",
            "total not rescaled",
            "the previous total is not rescaled when the maximum grows; "
            "multiply it by exp(old - new)",
            "total * (maximum - shift).exp() → total",
        ),
        Mistake(
            "rescale-inverted",
            "inverted rescaling factor",
            "the previous total is multiplied by exp(new - old); the factor "
            "should be exp(old - new), which is at most 1",
            "(maximum - shift).exp() → (shift - maximum).nan_to_num(posinf=0.0).exp()",
        ),
        Mistake(
            "rescaled-too-late",
            "new chunk rescaled as well",
            "the sum of the new chunk is rescaled as well; it is already "
            "shifted by the new maximum",
            "exp().sum(dim=-1) → exp().sum(dim=-1) * (maximum - shift).exp()",
        ),
        Mistake(
            "own-shift",
            "different shift for each chunk",
            "each chunk is shifted by its own maximum and the totals are "
            "added without rescaling",
            (
                "higher.masked_fill(higher == -torch.inf, 0.0) "
                "→ chunk.amax(dim=-1).clamp(min=-1e30)",
                "total * (maximum - shift).exp() → total",
            ),
        ),
        Mistake(
            "last-chunk",
            "last chunk only",
            "the totals are reset for each chunk, so only the last chunk is counted",
            (
                "torch.maximum(maximum, chunk.amax(dim=-1)) → chunk.amax(dim=-1)",
                "total * (maximum - shift).exp() → 0.0",
            ),
        ),
        Mistake(
            "last-maximum",
            "maximum of the last chunk",
            "the maximum is replaced by that of each chunk; it must never decrease",
            "torch.maximum(maximum, chunk.amax(dim=-1)) → chunk.amax(dim=-1)",
        ),
        Mistake(
            "first-maximum",
            "maximum of the first chunk",
            "all chunks are shifted by the maximum of the first one, which "
            "later scores can exceed",
            "torch.maximum(maximum, chunk.amax(dim=-1)) "
            "→ torch.where(maximum == -torch.inf, chunk.amax(-1), maximum)",
        ),
        Mistake(
            "starts-at-zero",
            "maximum initialized with 0",
            "the maximum is initialized with 0, which is wrong for a row of "
            "negative scores; initialize it with -inf",
            "torch.tensor(-torch.inf) → torch.tensor(0.0)",
        ),
        Mistake(
            "one-maximum",
            "one maximum for all rows",
            "all rows share one maximum, so rows far below it underflow to 0",
            "chunk.amax(dim=-1) → chunk.amax().expand(len(chunk))",
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "the exponential is applied to the scores without a shift, so it "
            "overflows; no later rescaling can repair that",
            (
                "total * (maximum - shift).exp() → total",
                "(chunk - shift[:, None]).exp() → chunk.exp()",
                "return maximum, total → return maximum, total * (-shift).exp()",
            ),
        ),
        Mistake(
            "empty-nan",
            "NaN in an empty row",
            "where all scores so far are masked out, -inf - (-inf) gives NaN; "
            "shift by 0 there",
            "higher.masked_fill(higher == -torch.inf, 0.0) → higher",
        ),
        Mistake(
            "logsumexp",
            "logsumexp instead of the total",
            "it returns the logsumexp; the exercise asks for the total",
            "return maximum, total → return maximum, maximum + total.log()",
        ),
        Mistake(
            "two-passes",
            "second pass over the stream",
            "`chunks` is read twice, and the second time it is empty",
            read_twice,
        ),
        Mistake(
            "kept",
            "chunks kept in memory",
            "it keeps all chunks in memory; two numbers for each row are enough",
            lambda chunks: online_softmax([torch.cat(list(chunks), -1)]),
        ),
    ),
)
