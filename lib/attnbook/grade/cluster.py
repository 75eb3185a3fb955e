"""Grading on an existing Dask cluster: one task per submission.

The cluster needs no common disk: a task carries its notebook. What is known is
kept on this machine, as it is without a cluster.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from attnbook.grade import batch, files
from attnbook.grade.cluster_worker import (
    OtherBookError,
    describe_book,
    grade_on_worker,
)
from attnbook.grade.process_limits import Limits

AHEAD = 2  # notebooks that are sent per thread of a worker, so that none waits
TIMES = 3  # how often a notebook is sent whose workers all die
CONNECT = 20.0  # seconds within which the scheduler must reply
PATIENCE = 300.0  # seconds without any worker, after which grading ends
POLL = 5.0
AGAIN = "; the same command goes on where this one stopped"


class ClusterError(ValueError):
    """The cluster cannot be used, or is lost."""


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """Open a client of the scheduler at this address.

    Raises:
        ClusterError: if Dask is not installed, or no scheduler replies.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            "--scheduler needs Dask, which is not installed here; in this "
            "book's clone: pip install '.[cluster]'"
        ) from error
    try:
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler replies at {address!r}: {error}"
        ) from error
    with client:
        yield client


def make_run(client: Any, seed: int, limits: Limits) -> batch.Run:
    """Return the function that grades notebooks on the cluster."""
    return partial(
        grade_on_cluster,
        executor=client.get_executor(pure=False),
        count_threads=lambda: sum(client.nthreads().values()),
        seed=seed,
        limits=limits,
    )


def grade_on_cluster(
    paths: list[Path],
    executor: Executor,
    count_threads: Callable[[], int],
    seed: int,
    limits: Limits,
) -> Iterator[tuple[Path, dict]]:
    """Yield every notebook with its result, in order of completion.

    The scheduler gives a lost worker's notebooks to others. If all workers of a
    notebook die, it is sent again, twice at most.

    Raises:
        ClusterError: if the cluster is lost or has another version of the book.
    """
    waiting, lost = deque(paths), Counter[Path]()
    running: dict[Future, Path] = {}
    seen = time.monotonic()
    try:
        while waiting or running:
            threads = ask(count_threads)
            seen = time.monotonic() if threads else seen
            if time.monotonic() - seen > PATIENCE:
                raise ClusterError(f"the cluster has no worker{AGAIN}")
            while waiting and len(running) < AHEAD * max(1, threads):
                path = waiting.popleft()
                try:
                    raw = files.read_bytes(path)
                except (OSError, ValueError):  # the result says why
                    yield path, batch.grade_one(path, seed, limits)
                    continue
                given = raw, seed, limits, describe_book()
                running[executor.submit(grade_on_worker, *given)] = path
            for job in wait(running, POLL, FIRST_COMPLETED).done:
                path = running.pop(job)
                try:
                    result = read_result(job)
                except BrokenTaskError as fault:
                    lost[path] += 1
                    if lost[path] < TIMES:
                        waiting.append(path)
                        continue
                    result = batch.make_failure(fault)
                yield path, result
    finally:
        for job in running:
            job.cancel()


class BrokenTaskError(Exception):
    """A task ended without a result, perhaps by chance."""


def ask(count_threads: Callable[[], int]) -> int:
    """Return how many threads the workers have.

    Raises:
        ClusterError: if the scheduler does not reply.
    """
    try:
        return count_threads()
    except OSError as error:
        raise ClusterError(f"the scheduler does not reply: {error}{AGAIN}") from error


def read_result(job: Future) -> dict:
    """Return the result of a task.

    Raises:
        BrokenTaskError: if there is none, and another attempt may have one.
        ClusterError: if no further attempt will have one.
    """
    try:
        return job.result()
    except CancelledError as error:
        raise ClusterError(f"the connection to the scheduler is lost{AGAIN}") from error
    except OtherBookError as error:
        raise ClusterError(f"{error}: install the same on all{AGAIN}") from error
    except ImportError as error:
        raise ClusterError(
            f"the cluster cannot import this book: {error}; install it for the "
            "scheduler and for every worker"
        ) from error
    except Exception as error:
        raise BrokenTaskError(str(error)) from error
