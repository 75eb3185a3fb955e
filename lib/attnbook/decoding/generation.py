"""Generation: from a model's probabilities to a sequence.

`greedy_search` and `beam_search` are for encoder-decoders, `sample` and
`decode_greedily` for decoders without and with the cache of chapter 9. `generate`
takes a batch of prompts of any lengths, padded on either side, and any cache of
`attnbook.decoding.caches`.

Source: Sutskever et al. (2014), section 3.2 (left-to-right beam search),
    https://arxiv.org/abs/1409.3215; the division by a power of the length is
    the simplest of those in Wu et al. (2016), section 7,
    https://arxiv.org/abs/1609.08144; top-k: Fan et al. (2018), section 5.4,
    https://arxiv.org/abs/1805.04833; top-p: Holtzman et al. (2020), section 3.1,
    https://arxiv.org/abs/1904.09751; min-p: Nguyen et al. (2025), section 3,
    https://arxiv.org/abs/2407.01082
Axes: B batch, S source symbols, T symbols of the prompts, V symbols; W beam width
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
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


def scale_by_temperature(
    logits: Float[Tensor, "*B V"], temperature: float | int
) -> Float[Tensor, "*B V"]:
    """Return logits divided by a temperature above 0."""
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature} but must be above 0")
    return logits / temperature


def keep_top_k(logits: Float[Tensor, "*B V"], k: int) -> Float[Tensor, "*B V"]:
    """Return logits with all but the k largest at -inf.

    Of equal logits the first are kept, so that there are exactly k.
    """
    if k < 1:
        raise ValueError(f"top-k is {k} but must be at least 1")
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[..., k:], -torch.inf)


def keep_top_p(logits: Float[Tensor, "*B V"], p: float | int) -> Float[Tensor, "*B V"]:
    """Return logits with all but the most probable symbols at -inf.

    Kept are the fewest symbols whose probabilities sum to at least p.
    """
    if not 0 < p <= 1:
        raise ValueError(f"top-p is {p} but must be above 0 and at most 1")
    if p == 1:  # a rounded sum reaches 1 before the last symbols
        return logits
    ordered, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
    reached = F.pad(ordered.cumsum(-1)[..., :-1] >= p, (1, 0))
    drop = torch.zeros_like(reached).scatter(-1, order, reached)
    return logits.masked_fill(drop, -torch.inf)


def keep_min_p(logits: Float[Tensor, "*B V"], p: float | int) -> Float[Tensor, "*B V"]:
    """Return logits at -inf where the probability is below p times the largest."""
    if not 0 <= p <= 1:
        raise ValueError(f"min-p is {p} but must be from 0 to 1")
    probabilities = logits.softmax(-1)
    least = p * probabilities.amax(-1, keepdim=True)
    return logits.masked_fill(probabilities < least, -torch.inf)


@dataclass(frozen=True)
class Sampling:
    """How a symbol is drawn: temperature, then top-k, top-p and min-p if given.

    Temperature 0 takes the most probable symbol.

    Raises:
        ValueError: if a number is outside its range, as in the four functions.
    """

    temperature: float | int = 1.0
    top_k: int | None = None
    top_p: float | int | None = None
    min_p: float | int | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(
                f"temperature is {self.temperature} but must be at least 0"
            )
        self.truncate(torch.zeros(1, device="cpu"))

    def truncate(self, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        """Return logits with -inf where top-k, top-p or min-p drops a symbol."""
        for keep, number in (
            (keep_top_k, self.top_k),
            (keep_top_p, self.top_p),
            (keep_min_p, self.min_p),
        ):
            logits = logits if number is None else keep(logits, number)
        return logits

    def probabilities(self, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        """Return the probabilities with which symbols are drawn."""
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter(-1, best, 1.0)
        logits = scale_by_temperature(logits, self.temperature)
        return self.truncate(logits).softmax(-1)

    def draw(
        self, logits: Float[Tensor, "B V"], rng: torch.Generator | None = None
    ) -> Int[Tensor, " B"]:
        """Return one symbol for each row of logits."""
        if self.temperature == 0:
            return logits.argmax(-1)
        return sample_columns(self.probabilities(logits), rng)[:, 0]


GREEDY = Sampling(temperature=0)


def find_positions(
    real: Bool[Tensor, "B T"], lengths: Int[Tensor, " B"]
) -> Int[Tensor, "B T"]:
    """Return the positions of new symbols after `lengths` others, -1 at padding.

    Raises:
        ValueError: if there is padding between the symbols of a sequence.
    """
    starts = real.diff(dim=1, prepend=torch.zeros_like(real[:, :1])) & real
    for b, runs in enumerate(starts.sum(1).tolist()):
        if runs > 1:
            raise ValueError(
                f"sequence {b} has padding between its symbols: its mask has "
                f"{runs} runs of True instead of 1"
            )
    positions = lengths[:, None] + real.cumsum(1) - 1
    return positions.masked_fill(~real, -1)


def require_prompts(ids: Tensor, mask: Tensor | None, cache: Any, count: int) -> None:
    """Raise ValueError unless every sequence has a symbol, and the cache room."""
    B, T = ids.shape
    if mask is not None and (mask.dtype, mask.shape) != (torch.bool, ids.shape):
        raise ValueError(
            f"the mask must be boolean, True = no padding, and {(B, T)}, but is "
            f"{mask.dtype} and {tuple(mask.shape)}"
        )
    if len(cache.lengths) != B:
        raise ValueError(
            f"there are {B} prompts, but the cache has {len(cache.lengths)} sequences"
        )
    sizes = cache.lengths.new_full((B,), T) if mask is None else mask.sum(1).cpu()
    if (sizes == 0).any():
        raise ValueError(
            f"prompt {int(sizes.argmin())} is empty (0 of {T} symbols are real), but "
            "generation needs at least 1"
        )
    cache.require_room(cache.lengths + sizes + count - 1)


@torch.no_grad()
def prefill(
    decoder: Any,
    ids: Int[Tensor, "B T"],
    cache: Any,
    mask: Bool[Tensor, "B T"] | None = None,
    chunk: int | None = None,
) -> Float[Tensor, "B V"]:
    """Add prompts to a cache; return logits after each one's last symbol.

    Args:
        mask: True where a symbol is not padding, which is on either side.
        chunk: how many columns pass through the model at a time; all of them unless
            given.

    Raises:
        ValueError: on an empty prompt, padding between symbols, or a cache that is
            too small; the cache is then as before.
    """
    require_prompts(ids, mask, cache, 1)
    if chunk is not None and chunk < 1:
        raise ValueError(f"a chunk has at least 1 symbol, not {chunk}")
    B, T = ids.shape
    last = torch.full((B,), T - 1, device=ids.device)
    if mask is not None:
        find_positions(mask, torch.zeros_like(last))
        last = T - 1 - mask.flip(1).int().argmax(1)
    found = None
    for start in range(0, T, chunk or T):
        columns = slice(start, min(start + (chunk or T), T))
        real = None if mask is None else mask[:, columns]
        hidden = decoder.run(ids[:, columns], cache, real)
        rows = torch.arange(B, device=ids.device)
        ends = (last - start).clamp(0, hidden.shape[1] - 1)
        ended = hidden[rows, ends]
        here = (last >= start)[:, None]
        found = ended if found is None else torch.where(here, ended, found)
    return decoder.predict(found)


@torch.no_grad()
def generate(
    decoder: Any,
    ids: Int[Tensor, "B T"],
    count: int,
    cache: Any,
    *,
    mask: Bool[Tensor, "B T"] | None = None,
    sampling: Sampling = GREEDY,
    stop: Collection[int] = (),
    rng: torch.Generator | None = None,
    chunk: int | None = None,
) -> list[list[int]]:
    """Return up to `count` new symbols of each sequence, without a stop symbol.

    A sequence that has ended is padding from then on. Afterwards the cache has all
    symbols except the last generated one of each sequence that did not end.

    Args:
        decoder: such as `attnbook.decoding.decoder.CachedDecoder`.
        ids: the prompts, or what follows the symbols that the cache has already.
        mask: True where a symbol is not padding, which is on either side.
        stop: symbols that end a sequence.
        chunk: as in `prefill`.

    Raises:
        ValueError: as `prefill`, where the cache needs room for the new symbols, too;
            on a negative count.
    """
    if count < 0:
        raise ValueError(f"the count must be at least 0, not {count}")
    require_prompts(ids, mask, cache, max(count, 1))
    found: list[list[int]] = [[] for _ in ids]
    running = torch.ones(len(ids), dtype=torch.bool, device="cpu")
    logits = prefill(decoder, ids, cache, mask, chunk)
    for i in range(count):
        new = sampling.draw(logits, rng)
        for b, symbol in enumerate(new.tolist()):
            running[b] &= symbol not in stop
            if running[b]:
                found[b].append(symbol)
        if i + 1 == count or not running.any():
            break
        real = None if running.all() else running[:, None]
        logits = decoder.predict(decoder.run(new[:, None], cache, real)[:, -1])
    return found
