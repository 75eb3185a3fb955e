"""Search: from a model's probabilities to a sequence.

Chapter: chapters/01_bottleneck
Source: Sutskever et al. (2014), section 3.2 (left-to-right beam search),
    https://arxiv.org/abs/1409.3215; the division by a power of the length is
    the simplest of those in Wu et al. (2016), section 7,
    https://arxiv.org/abs/1609.08144
Axes: B batch, S source symbols, V symbols; W beam width
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.encoder_decoder import Memory
from attnbook.vocabulary import END, PAD, START


class Found(NamedTuple):
    """What a search found for one source.

    Attributes:
        ids: the target symbols, without END.
        score: their log-probability in nats, END included if it was reached.
        weights: one row of weights (S,) a symbol, END included; or None.
    """

    ids: tuple[int, ...]
    score: float
    weights: Float[Tensor, "T S"] | None


def refuse_limit(limit: int) -> None:
    """Raise ValueError unless at least one symbol may be said."""
    if limit < 1:
        raise ValueError(
            f"limit is {limit} but a decoder says at least 1 symbol"
        )


@torch.no_grad()
def greedy(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    limit: int = 64,
) -> list[Found]:
    """Say the likeliest symbol at every step, up to END or `limit` symbols."""
    refuse_limit(limit)
    memory = model.encoder(source, lengths)
    state = model.decoder.start(memory)
    previous = torch.full_like(lengths, START)
    said, gains, looked = [], [], []
    running = torch.ones_like(lengths, dtype=torch.bool)
    for _ in range(limit):
        logits, state, weights = model.decoder.step(previous, state, memory)
        gain, previous = logits.log_softmax(dim=-1).max(dim=-1)
        said.append(previous.masked_fill(~running, PAD))
        gains.append(gain.masked_fill(~running, 0.0))
        if weights is not None:
            looked.append(weights)
        running = running & (previous != END)
        if not running.any():
            break
    ids, scores = torch.stack(said, dim=1), torch.stack(gains, dim=1).sum(1)
    rows = torch.stack(looked, dim=1) if looked else [None] * len(ids)
    return [
        finish(i, float(score), row)
        for i, score, row in zip(ids.tolist(), scores, rows, strict=True)
    ]


def finish(ids: list[int], score: float, rows: Tensor | None) -> Found:
    """Cut what was said at END, and its weights just after it."""
    end = ids.index(END) if END in ids else len(ids)
    kept = None if rows is None else rows[: end + 1]
    return Found(tuple(ids[:end]), score, kept)


@torch.no_grad()
def beam(
    model: nn.Module,
    source: Int[Tensor, " S"],
    width: int = 4,
    limit: int = 64,
    length_power: float = 0.0,
) -> list[Found]:
    """Keep the `width` likeliest beginnings at every step.

    Args:
        model: an encoder-decoder.
        source: ids of one source, without padding.
        width: how many beginnings are kept; 1 is greedy search.
        limit: the most symbols said.
        length_power: scores are compared after division by length ** this;
            0 compares plain log-probabilities, which favour short answers.

    Returns:
        At most `width` answers, the best first.

    Raises:
        ValueError: on a width or limit below 1.
    """
    refuse_limit(limit)
    if width < 1:
        raise ValueError(f"width is {width} but a beam keeps at least 1")
    memory = model.encoder(source[None], torch.tensor([len(source)]))
    state = model.decoder.start(memory)
    scores, said, done = torch.zeros(1), [[]], []
    looked: list[list[Tensor]] = [[]]

    def fitness(found: Found) -> float:
        return found.score / max(1, len(found.ids) + 1) ** length_power

    for _ in range(limit):
        previous = torch.tensor([ids[-1] if ids else START for ids in said])
        logits, state, weights = model.decoder.step(
            previous, state, spread(memory, len(said))
        )
        total = scores[:, None] + logits.log_softmax(dim=-1)
        scores, flat = total.flatten().topk(min(width, total.numel()))
        rows, symbols = flat // total.shape[1], (flat % total.shape[1]).tolist()
        said = [[*said[r], s] for r, s in zip(rows, symbols, strict=True)]
        if weights is not None:
            looked = [[*looked[r], weights[r]] for r in rows]
        else:
            looked = [[]] * len(said)
        keep = []
        for i, ids in enumerate(said):
            if ids[-1] == END:
                seen = torch.stack(looked[i]) if looked[i] else None
                done.append(finish(ids, float(scores[i]), seen))
            else:
                keep.append(i)
        if not keep or len(done) >= width:
            break
        scores, rows = scores[keep], rows[keep]
        state = tuple(x[rows] for x in state)
        said, looked = [said[i] for i in keep], [looked[i] for i in keep]
    else:
        for ids, score, seen in zip(said, scores, looked, strict=True):
            rows = torch.stack(seen) if seen else None
            done.append(finish(ids, float(score), rows))
    return sorted(done, key=fitness, reverse=True)[:width]


def spread(memory: Memory, count: int) -> Memory:
    """Repeat the memory of one source for each beginning in the beam."""
    return Memory(*(x.expand(count, *x.shape[1:]) for x in memory))
