"""Exercise: the softmax's maximum and total, from scores read once.

Source: Milakov and Gimelshein (2018), algorithm 3,
    https://arxiv.org/abs/1805.02867, chunk by chunk
Axes: T queries, n scores of a chunk
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.flash_attention.online_answers import (
    both_rescaled,
    joined,
    raw,
    shifted_by_own,
    step,
    twice_read,
    unguarded,
)
from attnbook.exercises.flash_attention.stream import Stream
from attnbook.exercises.inputs import normal, whole
from attnbook.exercises.solutions.flash_attention import online_softmax

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


check_online_softmax = Exercise(
    title="online softmax",
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
            "total not rescaled",
            "the previous total is not rescaled when the maximum grows; "
            "multiply it by exp(old - new)",
            step(rescale=lambda old, new: torch.ones(())),
        ),
        Mistake(
            "rescale-inverted",
            "inverted rescaling factor",
            "the previous total is multiplied by exp(new - old); the factor "
            "should be exp(old - new), which is at most 1",
            step(
                rescale=lambda old, new: (
                    (new - old).masked_fill(old == -torch.inf, 0.0).exp()
                )
            ),
        ),
        Mistake(
            "rescaled-too-late",
            "new chunk rescaled as well",
            "the sum of the new chunk is rescaled as well; it is already "
            "shifted by the new maximum",
            both_rescaled,
        ),
        Mistake(
            "own-shift",
            "different shift for each chunk",
            "each chunk is shifted by its own maximum and the totals are "
            "added without rescaling",
            shifted_by_own,
        ),
        Mistake(
            "last-chunk",
            "last chunk only",
            "the totals are reset for each chunk, so only the last chunk is "
            "counted",
            step(
                rescale=lambda old, new: torch.zeros(()),
                higher=lambda old, new: new,
            ),
        ),
        Mistake(
            "last-maximum",
            "maximum of the last chunk",
            "the maximum is replaced by that of each chunk; it must never "
            "decrease",
            step(higher=lambda old, new: new),
        ),
        Mistake(
            "first-maximum",
            "maximum of the first chunk",
            "all chunks are shifted by the maximum of the first one, which "
            "later scores can exceed",
            step(
                higher=lambda old, new: torch.where(old == -torch.inf, new, old)
            ),
        ),
        Mistake(
            "starts-at-zero",
            "maximum initialized with 0",
            "the maximum is initialized with 0, which is wrong for a row of "
            "negative scores; initialize it with -inf",
            step(start=0.0),
        ),
        Mistake(
            "one-maximum",
            "one maximum for all rows",
            "all rows share one maximum, so rows far below it underflow to 0",
            step(best=lambda chunk: chunk.amax().expand(len(chunk))),
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "the exponential is applied to the scores without a shift, so it "
            "overflows; no later rescaling can repair that",
            step(
                rescale=lambda old, new: torch.ones(()),
                weigh=lambda chunk, top: chunk.exp().sum(-1),
                end=raw,
            ),
        ),
        Mistake(
            "empty-nan",
            "NaN in an empty row",
            "where all scores so far are masked out, -inf - -inf gives NaN; "
            "shift by 0 there",
            unguarded,
        ),
        Mistake(
            "logsumexp",
            "logsumexp instead of the total",
            "it returns the logsumexp; the exercise asks for the total",
            step(end=lambda top, total: (top, top + total.log())),
        ),
        Mistake(
            "two-passes",
            "second pass over the stream",
            "the stream is read twice, and the second time it is empty",
            twice_read,
        ),
        Mistake(
            "kept",
            "chunks kept in memory",
            "it keeps all chunks in memory; two numbers for each row are "
            "enough",
            joined(online_softmax),
        ),
    ),
)
