"""Continuous batching: sequences join and leave the batch at every turn.

In a turn, all running sequences get a symbol in one pass, and one waiting prompt passes
through the model by a chunk in another: no prompt delays the others' symbols by more.
Arrivals are given in turns, so that a run can be repeated.

Source: scheduling by iteration: Yu et al. (2022), Orca, section 3.1,
    https://www.usenix.org/conference/osdi22/presentation/yu; chunked prefill: Agrawal
    et al. (2024), Sarathi-Serve, section 4.1, https://arxiv.org/abs/2403.02310
    (departure: two passes a turn instead of one)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from attnbook.decoding.caches import PagedCache, PagedSequence, PagePool
from attnbook.decoding.decoder import CachedDecoder


@dataclass(frozen=True)
class Request:
    """A prompt, the number of new symbols, and the turn at which it arrives."""

    ids: Sequence[int]
    count: int
    arrival: int = 0


class Served(NamedTuple):
    """The new symbols, and the turns of the first and the last of them."""

    ids: list[int]
    first: int
    last: int


def serve(
    decoder: CachedDecoder,
    pool: PagePool,
    requests: Sequence[Request],
    slots: int = 4,
    chunk: int = 16,
) -> list[Served]:
    """Return what greedy decoding gives for each request, served together.

    A request is admitted, first come first served, if one of the `slots` is free and
    the pool has pages for all of its symbols, besides those of the admitted ones. Full
    pages of prompts are shared.

    Raises:
        ValueError: if a request is empty or too large for the pool's free pages.
    """
    total = len(pool.free)
    pages = [pool.count_pages(len(x.ids) + x.count - 1) for x in requests]
    for i, (x, needed) in enumerate(zip(requests, pages, strict=True)):
        if not len(x.ids) or x.count < 1 or needed > total:
            raise ValueError(
                f"request {i} has {len(x.ids)} symbols, asks for {x.count} and needs "
                f"{needed} pages: it needs at least 1 symbol of each, and the pool has "
                f"{total} free pages"
            )
    waiting = sorted(range(len(requests)), key=lambda i: requests[i].arrival)
    admitted: dict[int, PagedSequence] = {}
    found: list[list[int]] = [[] for _ in requests]
    turns: list[list[int]] = [[] for _ in requests]
    turn = 0
    while waiting or admitted:
        while (
            waiting
            and requests[waiting[0]].arrival <= turn
            and len(admitted) < slots
            and sum(pages[i] for i in [*admitted, waiting[0]]) <= total
        ):
            i = waiting.pop(0)
            admitted[i] = pool.find_prefix(requests[i].ids)
        running = [i for i in admitted if found[i]]
        reading = [i for i in admitted if not found[i]][:1]
        starts = {i: admitted[i].length for i in reading}
        new = [list(requests[i].ids[n : n + chunk]) for i, n in starts.items()]
        for batch, ids in (running, [found[i][-1:] for i in running]), (reading, new):
            if not batch:
                continue
            cache = PagedCache(pool, [admitted[i] for i in batch])
            symbols = torch.tensor(ids, device=decoder.table.device)
            best = decoder.predict(decoder.run(symbols, cache)[:, -1]).argmax(-1)
            for i, symbol in zip(batch, best.tolist(), strict=True):
                if admitted[i].length >= len(requests[i].ids):
                    found[i].append(symbol)
                    turns[i].append(turn)
        for i in reading:
            pool.publish(admitted[i], requests[i].ids)
        for i in [i for i in admitted if len(found[i]) == requests[i].count]:
            PagedCache(pool, [admitted.pop(i)]).rewind(0)
        turn += 1
    return [Served(x, t[0], t[-1]) for x, t in zip(found, turns, strict=True)]
