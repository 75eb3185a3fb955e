"""Exercise: the softmax's maximum and total, from scores read once.

Chapter: chapters/11_flash_attention
Source: Milakov and Gimelshein (2018), algorithm 3,
    https://arxiv.org/abs/1805.02867, chunk by chunk
Axes: T queries, n scores of a chunk
"""

import torch
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.flash_attention.stream import Stream
from attnbook.exercises.inputs import normal, whole
from attnbook.solutions.flash_attention import online_softmax

LONG, ROWS, WIDTH = 24, 4, 64  # a stream that is not to be kept


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One chunk; several; then what hides a mistake; then one too long."""

    def chunks(*widths, t=3, size=2.0):
        return [size * normal(rng, t, n) for n in widths]

    def climbing(step, t=3):
        return [step * i + normal(rng, t, 4) for i in range(5)]

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
    far = [x + whole(rng, -400, 400, 3, 1) for x in chunks(5, 5, 5, 5)]
    half = ROWS * WIDTH * LONG * 4 // 2
    found = {
        "with one chunk": chunks(5),
        "with two chunks of one score": chunks(1, 1, t=1),
        "with 4 chunks": chunks(5, 5, 5, 5),
        "with chunks of different widths": chunks(7, 2, 5, 1, 3, t=2),
        "with scores that grow from chunk to chunk": climbing(3.0),
        "with scores that fall from chunk to chunk": climbing(-3.0),
        "with rows at 300, 0 and -300": apart,
        "with chunks far apart": far,
        "with hidden scores": hidden,
        "with a row that is hidden altogether": nothing,
        "in double precision": [x.double() for x in chunks(5, 2, 7)],
    }
    cases = [Case(tries, (Stream(given),)) for tries, given in found.items()]
    long = Stream(chunks(*[WIDTH] * LONG, t=ROWS))
    return *cases, Case(f"with {LONG} chunks", (long,), room=half)


def step(
    rescale=lambda old, new: (old - new).exp(),
    higher=torch.maximum,
    best=lambda chunk: chunk.amax(-1),
    weigh=lambda chunk, top: (chunk - top[:, None]).exp().sum(-1),
    start=-torch.inf,
    end=lambda top, total: (top, total),
):
    """Return an answer with some of its lines replaced.

    Args:
        rescale: the factor of what was summed before.
        higher: the new maximum, from the old one and the chunk's.
        best: the chunk's maximum.
        weigh: what a chunk adds.
        start: the maximum before the first chunk.
        end: what is returned.
    """

    def answer(chunks):
        top, total = torch.tensor(start), torch.tensor(0.0)
        for chunk in chunks:
            now = higher(top.to(chunk.dtype), best(chunk))
            low = now.masked_fill(now == -torch.inf, 0.0)
            total = total * rescale(top, low) + weigh(chunk, low)
            top = now
        return end(top, total)

    return answer


def both_rescaled(chunks):
    """Rescale the chunk's own sum along with the old one."""
    top, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        now = torch.maximum(top, chunk.amax(-1))
        low = now.masked_fill(now == -torch.inf, 0.0)
        total = total + (chunk - low[:, None]).exp().sum(-1)
        total, top = total * (top - low).exp(), now
    return top, total


def shifted_by_own(chunks):
    """Shift each chunk by its own maximum, and add up."""
    tops, totals = [], []
    for chunk in chunks:
        top = chunk.amax(-1)
        low = top.masked_fill(top == -torch.inf, 0.0)
        tops.append(top)
        totals.append((chunk - low[:, None]).exp().sum(-1))
    return torch.stack(tops).amax(0), torch.stack(totals).sum(0)


def unguarded(chunks):
    """Leave -inf - -inf as it is."""
    top, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        now = torch.maximum(top, chunk.amax(-1))
        total = total * (top - now).exp() + (chunk - now[:, None]).exp().sum(-1)
        top = now
    return top, total


def twice_read(chunks):
    """Read for the maximum, then read again for the total."""
    top = torch.stack([chunk.amax(-1) for chunk in chunks]).amax(0)
    low, total = top.masked_fill(top == -torch.inf, 0.0), torch.zeros_like(top)
    for chunk in chunks:
        total = total + (chunk - low[:, None]).exp().sum(-1)
    return top, total


def joined(answer):
    """Return an answer that first puts all chunks side by side."""
    return lambda chunks: answer([torch.cat(list(chunks), -1)])


def raw(top: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Bring a sum of unshifted powers to the maximum, when it is too late."""
    low = top.masked_fill(top == -torch.inf, 0.0)
    return top, total * (-low).exp()


check_online_softmax = Exercise(
    title="softmax in one pass",
    stars=1,
    minutes=10,
    section="Softmax in one pass",
    solution=online_softmax,
    returns=("maximum", "total"),
    draw=draw,
    allowed="Everything is allowed but keeping the chunks.",
    mistakes=(
        Mistake(
            "no-rescale",
            "the maximum has grown and what was summed before still belongs "
            "to the old one; multiply it by exp(old - new)",
            step(rescale=lambda old, new: torch.ones(())),
        ),
        Mistake(
            "rescale-inverted",
            "the old total is multiplied by exp(new - old), which makes it "
            "grow; exp(old - new) is at most 1",
            step(
                rescale=lambda old, new: (
                    (new - old).masked_fill(old == -torch.inf, 0.0).exp()
                )
            ),
        ),
        Mistake(
            "rescaled-too-late",
            "the new chunk's sum is rescaled along with the old one; it is "
            "shifted by the new maximum already",
            both_rescaled,
        ),
        Mistake(
            "own-shift",
            "each chunk is shifted by its own maximum and the totals are "
            "added; they belong to different maxima",
            shifted_by_own,
        ),
        Mistake(
            "last-chunk",
            "each chunk begins anew: only the last one is left",
            step(
                rescale=lambda old, new: torch.zeros(()),
                higher=lambda old, new: new,
            ),
        ),
        Mistake(
            "last-maximum",
            "the maximum follows each chunk, downwards too; a lower one may "
            "not replace a higher one",
            step(higher=lambda old, new: new),
        ),
        Mistake(
            "first-maximum",
            "all chunks are shifted by the first one's maximum",
            step(
                higher=lambda old, new: torch.where(old == -torch.inf, new, old)
            ),
        ),
        Mistake(
            "starts-at-zero",
            "the maximum starts at 0, and a row of negative scores never "
            "gets below it; start at -inf",
            step(start=0.0),
        ),
        Mistake(
            "one-maximum",
            "all rows share one maximum; a row far below it is 0 everywhere",
            step(best=lambda chunk: chunk.amax().expand(len(chunk))),
        ),
        Mistake(
            "no-shift",
            "exp is taken of the scores as they are, and overflows; no factor "
            "brings it back",
            step(
                rescale=lambda old, new: torch.ones(()),
                weigh=lambda chunk, top: chunk.exp().sum(-1),
                end=raw,
            ),
        ),
        Mistake(
            "empty-nan",
            "where all scores so far are hidden, -inf - -inf is NaN; shift by "
            "0 there",
            unguarded,
        ),
        Mistake(
            "logsumexp",
            "this is the logsumexp; the total itself is asked for",
            step(end=lambda top, total: (top, top + total.log())),
        ),
        Mistake(
            "two-passes",
            "the stream is read twice, and the second time it is empty",
            twice_read,
        ),
        Mistake(
            "kept",
            "it keeps the chunks that it has read; two numbers a row are "
            "enough",
            joined(online_softmax),
        ),
    ),
)
