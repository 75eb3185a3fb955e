"""Generation: from a model's probabilities to a sequence.

`greedy_search` and `beam_search` are for encoder-decoders, `sample` for decoders
without a cache, `generate` for decoders with any cache of `attnbook.decoding.caches`.

Source: Sutskever et al. (2014), section 3.2 (left-to-right beam search),
    https://arxiv.org/abs/1409.3215; the division by a power of the length is
    the simplest of those in Wu et al. (2016), section 7,
    https://arxiv.org/abs/1609.08144; top-k: Fan et al. (2018), section 5.4,
    https://arxiv.org/abs/1805.04833; top-p: Holtzman et al. (2020), section 3.1,
    https://arxiv.org/abs/1904.09751; min-p: Nguyen et al. (2024),
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
    how = Sampling(temperature)
    if not ids.shape[1]:
        raise ValueError(
            f"ids of shape {tuple(ids.shape)} are empty: sampling needs at least 1 "
            "symbol"
        )
    for _ in range(count):
        logits = model(ids if window is None else ids[:, -window:])[:, -1]
        ids = torch.cat([ids, how.draw(logits, rng)[:, None]], dim=1)
    return ids


def keep_top_k(logits: Float[Tensor, "*B V"], k: int) -> Float[Tensor, "*B V"]:
    """Return logits with all but the k largest at -inf; of equal ones the first."""
    if k < 1:
        raise ValueError(f"top-k is {k} but must be at least 1")
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[..., k:], -torch.inf)


def keep_top_p(logits: Float[Tensor, "*B V"], p: float | int) -> Float[Tensor, "*B V"]:
    """Return logits at -inf but for the fewest symbols of probability p together."""
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

    Temperature 0 takes the most probable symbol. A number outside its range is refused.
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
        numbers = self.top_k, self.top_p, self.min_p
        filters = keep_top_k, keep_top_p, keep_min_p
        for keep, number in zip(filters, numbers, strict=True):
            logits = logits if number is None else keep(logits, number)
        return logits

    def probabilities(self, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        """Return the probabilities with which symbols are drawn."""
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter(-1, best, 1.0)
        return self.truncate(logits / self.temperature).softmax(-1)

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

    Padding between the symbols of a sequence is refused.
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


def require_fit(ids: Tensor, mask: Tensor | None, cache: Any) -> None:
    """Raise ValueError unless symbols, mask and cache fit each other."""
    if mask is not None and (mask.dtype, mask.shape) != (torch.bool, ids.shape):
        raise ValueError(
            f"the mask must be boolean, True = no padding, and {tuple(ids.shape)}, but "
            f"is {mask.dtype} and {tuple(mask.shape)}"
        )
    if len(cache.lengths) != len(ids):
        raise ValueError(
            f"there are {len(ids)} rows of symbols, but the cache has "
            f"{len(cache.lengths)} sequences"
        )


def require_prompts(ids: Tensor, mask: Tensor | None, cache: Any, count: int) -> None:
    """Raise ValueError unless every sequence has a symbol, and the cache room."""
    require_fit(ids, mask, cache)
    B, T = ids.shape
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
) -> Float[Tensor, "B V"]:
    """Add prompts to a cache; return logits after each one's last symbol.

    Arguments and errors are those of `generate`.
    """
    require_prompts(ids, mask, cache, 1)
    hidden = decoder.run(ids, cache, mask)
    last = torch.full((len(ids),), ids.shape[1] - 1, device=ids.device)
    if mask is not None:
        last -= mask.flip(1).int().argmax(1)
    return decoder.predict(hidden[torch.arange(len(ids), device=ids.device), last])


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
) -> list[list[int]]:
    """Return up to `count` new symbols of each sequence, without a stop symbol.

    A sequence that has ended is padding from then on. Afterwards the cache has all
    symbols except the last generated one of each sequence that did not end.

    Args:
        decoder: such as `attnbook.decoding.decoder.CachedDecoder`.
        ids: the prompts, or what follows the symbols that the cache has already.
        mask: True where a symbol is not padding, which is on either side.
        stop: symbols that end a sequence.

    Raises:
        ValueError: on an empty prompt, a negative count, padding between symbols, or a
            cache that is too small; the cache is then as before.
    """
    if count < 0:
        raise ValueError(f"the count must be at least 0, not {count}")
    require_prompts(ids, mask, cache, max(count, 1))
    found: list[list[int]] = [[] for _ in ids]
    running = torch.ones(len(ids), dtype=torch.bool, device="cpu")
    logits = prefill(decoder, ids, cache, mask)
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
