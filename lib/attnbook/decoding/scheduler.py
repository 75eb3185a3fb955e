"""Continuous batching: sequences join and leave the batch at every turn.

In a turn, all running sequences get a symbol in one pass, and one waiting prompt
passes through the model by a chunk in another, so that long prompts do not delay the
symbols of others by more than a chunk. Arrivals are given in turns, so that a run can
be repeated.

Source: scheduling by iteration: Yu et al. (2022), Orca, section 3.1,
    https://www.usenix.org/conference/osdi22/presentation/yu; chunked prefill: Agrawal
    et al. (2024), Sarathi-Serve, section 4.1, https://arxiv.org/abs/2403.02310
    (departure: two passes a turn instead of one)
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
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


@dataclass(eq=False)
class Job:
    """A request that has been admitted."""

    request: Request
    sequence: PagedSequence
    found: list[int] = field(default_factory=list)
    first: int = 0


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
        ValueError: if a prompt is empty, no symbol is requested, the pool is too small
            for a request or is used already, or slots or chunk are below 1.
    """

    def count_pages(request: Request) -> int:
        return -(-(len(request.ids) + request.count - 1) // pool.page)

    total = len(pool.references)
    if slots < 1 or chunk < 1:
        raise ValueError(f"slots and chunk must be at least 1, not {slots} and {chunk}")
    if len(pool.free) != total:
        raise ValueError(
            f"the pool must be empty, but {total - len(pool.free)} of {total} pages "
            "are used"
        )
    for i, request in enumerate(requests):
        if not len(request.ids) or request.count < 1:
            raise ValueError(
                f"request {i} has {len(request.ids)} symbols and asks for "
                f"{request.count}, but needs at least 1 of each"
            )
        if count_pages(request) > total:
            raise ValueError(
                f"request {i} needs {count_pages(request)} pages, but the pool has "
                f"{total}"
            )
    order = sorted(range(len(requests)), key=lambda i: requests[i].arrival)
    waiting, jobs, served = deque(order), {}, {}
    turn = 0
    while waiting or jobs:
        while waiting and requests[waiting[0]].arrival <= turn and len(jobs) < slots:
            request = requests[waiting[0]]
            taken = sum(count_pages(job.request) for job in jobs.values())
            if taken + count_pages(request) > total:
                break
            shared = pool.find_prefix(request.ids)
            jobs[waiting.popleft()] = Job(request, shared)
        running = [job for job in jobs.values() if job.found]
        reading = [job for job in jobs.values() if not job.found][:1]
        for some, ids in (
            (running, [[job.found[-1]] for job in running]),
            (reading, [read_chunk(job, chunk) for job in reading]),
        ):
            if some:
                symbols = torch.tensor(ids, device=decoder.table.device)
                cache = PagedCache(pool, [job.sequence for job in some])
                logits = decoder.predict(decoder.run(symbols, cache)[:, -1])
                for job, symbol in zip(some, logits.argmax(-1).tolist(), strict=True):
                    if job.sequence.length >= len(job.request.ids):
                        job.found.append(symbol)
                        job.first = job.first if len(job.found) > 1 else turn
        for job in reading:
            pool.publish(job.sequence, job.request.ids[: job.sequence.length])
        for i, job in [*jobs.items()]:
            if len(job.found) == job.request.count:
                served[i] = Served(job.found, job.first, turn)
                PagedCache(pool, [job.sequence]).rewind(0)
                del jobs[i]
        turn += 1
    return [served[i] for i in range(len(requests))]


def read_chunk(job: Job, chunk: int) -> list[int]:
    """Return the symbols of a prompt that pass through the model next."""
    start = job.sequence.length
    return list(job.request.ids[start : start + chunk])
