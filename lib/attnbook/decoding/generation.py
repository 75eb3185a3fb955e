"""Generation: from a model's probabilities to a sequence.

Source: Sutskever et al. (2014), section 3.2 (left-to-right beam search),
    https://arxiv.org/abs/1409.3215; the division by a power of the length is
    the simplest of those in Wu et al. (2016), section 7,
    https://arxiv.org/abs/1609.08144
Axes: B batch, S source symbols, V symbols; W beam width
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attnbook.data.vocabulary import END, PAD, START
from attnbook.models.devices import sample_columns
from attnbook.models.recurrent import Memory


class SearchResult(NamedTuple):
    """The result of a search for one source.

    Attributes:
        ids: the target symbols, without END.
        score: their log-probability in nats, END included if it was reached.
        weights: one row of attention weights (S,) for each symbol, END
            included, on the CPU; or None.
    """

    ids: tuple[int, ...]
    score: float
    weights: Float[Tensor, "T S"] | None


@torch.no_grad()
def greedy_search(
    model: nn.Module,
    source: Shaped[Tensor, "B S *C"],
    lengths: Int[Tensor, " B"],
    limit: int = 64,
) -> list[SearchResult]:
    """Take the likeliest symbol at every step, up to END or `limit` symbols.

    Raises:
        ValueError: on a limit below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit} but a decoder generates at least 1 symbol")
    memory = model.encoder(source, lengths)
    state = model.decoder.start(memory)
    previous = torch.full_like(lengths, START)
    prefixes, gains, rows_of_prefixes = [], [], []
    running = torch.ones_like(lengths, dtype=torch.bool)
    for _ in range(limit):
        logits, state, weights = model.decoder.step(previous, state, memory)
        gain, previous = logits.log_softmax(dim=-1).max(dim=-1)
        prefixes.append(previous.masked_fill(~running, PAD))
        gains.append(gain.masked_fill(~running, 0.0))
        if weights is not None:
            rows_of_prefixes.append(weights)
        running = running & (previous != END)
        if not running.any():
            break
    ids, scores = torch.stack(prefixes, dim=1), torch.stack(gains, dim=1).sum(1)
    rows = (
        torch.stack(rows_of_prefixes, dim=1) if rows_of_prefixes else [None] * len(ids)
    )
    return [
        drop_after_end(i, score, row)
        for i, score, row in zip(ids.tolist(), scores.tolist(), rows, strict=True)
    ]


def drop_after_end(ids: list[int], score: float, rows: Tensor | None) -> SearchResult:
    """Cut the symbols at END, and the weights just after it."""
    end = ids.index(END) if END in ids else len(ids)
    kept = None if rows is None else rows[: end + 1].cpu()
    return SearchResult(tuple(ids[:end]), score, kept)


@torch.no_grad()
def beam_search(
    model: nn.Module,
    source: Int[Tensor, " S"],
    width: int = 4,
    limit: int = 64,
    length_power: float = 0.0,
) -> list[SearchResult]:
    """Keep the `width` likeliest beginnings at every step.

    Args:
        model: an encoder-decoder.
        source: ids of one source, without padding.
        width: how many beginnings are kept; 1 is greedy search.
        limit: the most symbols generated.
        length_power: scores are compared after division by length ** this;
            0 compares plain log-probabilities, which favor short outputs.

    Returns:
        At most `width` results, the best first.

    Raises:
        ValueError: on a width or limit below 1.
    """
    if width < 1 or limit < 1:
        raise ValueError(
            f"width is {width} and limit is {limit}, but both must be at least 1"
        )
    device = source.device
    length = torch.tensor([len(source)], device=device)
    memory = model.encoder(source[None], length)
    state = model.decoder.start(memory)
    scores, prefixes, done = torch.zeros(1, device=device), [[START]], []
    rows_of_prefixes: list[list[Tensor]] = [[]]

    def finish(i: int) -> None:
        rows = rows_of_prefixes[i]
        seen = torch.stack(rows) if rows else None
        done.append(drop_after_end(prefixes[i][1:], float(scores[i]), seen))

    for _ in range(limit):
        previous = torch.tensor([ids[-1] for ids in prefixes], device=device)
        copies = Memory(*(x.expand(len(prefixes), *x.shape[1:]) for x in memory))
        logits, state, weights = model.decoder.step(previous, state, copies)
        total = scores[:, None] + logits.log_softmax(dim=-1)
        scores, flat = total.flatten().topk(min(width, total.numel()))
        parents = (flat // total.shape[1]).tolist()
        symbols = (flat % total.shape[1]).tolist()
        prefixes = [[*prefixes[r], s] for r, s in zip(parents, symbols, strict=True)]
        rows_of_prefixes = [
            rows_of_prefixes[r]
            if weights is None
            else [*rows_of_prefixes[r], weights[r]]
            for r in parents
        ]
        keep = []
        for i, ids in enumerate(prefixes):
            if ids[-1] == END:
                finish(i)
            else:
                keep.append(i)
        if not keep or len(done) >= width:
            break
        scores = scores[keep]
        state = tuple(x[[parents[i] for i in keep]] for x in state)
        prefixes = [prefixes[i] for i in keep]
        rows_of_prefixes = [rows_of_prefixes[i] for i in keep]
    else:
        for i in range(len(prefixes)):
            finish(i)

    def fitness(found: SearchResult) -> float:
        return found.score / (len(found.ids) + 1) ** length_power

    return sorted(done, key=fitness, reverse=True)[:width]


@torch.no_grad()
def sample(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    count: int,
    temperature: float | int = 1.0,
    window: int | None = None,
    rng: torch.Generator | None = None,
) -> Int[Tensor, "B _"]:
    """Return ids with `count` more symbols sampled from the model's logits (B, T, V).

    Temperature 0 takes the most probable symbol. The model gets the last `window`
    symbols, or all. A generator on the CPU gives the same symbols for one seed
    everywhere.

    Raises:
        ValueError: on a negative temperature or an empty beginning.
    """
    if temperature < 0:
        raise ValueError(f"temperature is {temperature} but must be at least 0")
    if not ids.shape[1]:
        raise ValueError(
            f"ids of shape {tuple(ids.shape)} are empty: sampling needs at least 1 "
            "symbol"
        )
    for _ in range(count):
        inputs = ids if window is None else ids[:, -window:]
        logits = model(inputs)[:, -1]
        if temperature == 0:
            drawn = logits.argmax(-1, keepdim=True)
        else:
            probabilities = (logits / temperature).softmax(-1)
            drawn = sample_columns(probabilities, rng)
        ids = torch.cat([ids, drawn], dim=1)
    return ids


@torch.no_grad()
def decode_greedily(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    count: int,
    mask: Bool[Tensor, "B 1 1 T"] | None = None,
) -> Int[Tensor, "B _"]:
    """Return ids with `count` more symbols, each the most probable one.

    Every symbol passes through the model once: the KV cache has the rest. The mask is
    True where a symbol is not padding, which must be before the symbols; rotary
    embeddings depend on distances only, so padding there needs no other positions.

    Raises:
        ValueError: on an empty beginning, a negative count, a mask of another
            shape, or padding at the end.
    """
    if not ids.shape[1] or count < 0:
        raise ValueError(
            f"decoding needs at least 1 symbol and a count of at least 0, not "
            f"{ids.shape[1]} symbols and a count of {count}"
        )
    if mask is not None:
        require_left_padding(mask, ids)
    new, caches = ids, None
    for _ in range(count):
        logits, caches = model.decode(new, caches, mask)
        new = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], dim=1)
        if mask is not None:
            mask = nn.functional.pad(mask, (0, 1), value=True)
    return ids


def require_left_padding(
    mask: Bool[Tensor, "B 1 1 T"], ids: Int[Tensor, "B T"]
) -> None:
    """Raise ValueError unless a mask of ids has its padding at the beginning."""
    B, T = ids.shape
    if mask.shape != (B, 1, 1, T):
        raise ValueError(
            f"for ids {(B, T)} the mask must be {(B, 1, 1, T)}, but is "
            f"{tuple(mask.shape)}"
        )
    if not mask[..., -1].all() or (mask[..., :-1] & ~mask[..., 1:]).any():
        raise ValueError(
            "a sequence that goes on needs its padding at the beginning: the mask "
            "must be False, then True, and True at the end"
        )
