"""Taking turns: runs and timings on one machine do not disturb each other.

A run that uses one thread takes one of as many places as there are cores; a
benchmark takes them all. Two PyTorch jobs that want the same cores can slow
each other a hundredfold, and a timing taken beside another job is no timing.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

LOCKS = Path(tempfile.gettempdir()) / "attnbook-cores"


@contextmanager
def hold_cores(threads: int = 1, folder: Path | None = None) -> Iterator[None]:
    """Wait for `threads` places on this machine, and hold them.

    The locks are in `folder`, `LOCKS` unless told.

    Raises:
        ValueError: if more places are asked for than there are cores.
    """
    cores = os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise ValueError(f"{threads} threads asked for, but {cores} cores here")
    folder = folder or LOCKS
    folder.mkdir(exist_ok=True)
    with ExitStack() as held:
        # One waits at a time: two that each hold half would wait for ever.
        with FileLock(folder / "gate"):
            for _ in range(threads):
                held.enter_context(acquire_core(cores, folder))
        yield


def acquire_core(cores: int, folder: Path) -> AcquireReturnProxy:
    """Return a place that was free, taken; leaving its block gives it back."""
    while True:
        for i in range(cores):
            lock = FileLock(folder / f"place{i}", is_singleton=False)
            try:
                return lock.acquire(timeout=0)
            except Timeout:
                continue
        time.sleep(0.2)
