"""Limits on a call of a learner's function: time, printed text and memory.

The alarm needs a platform that has one (not Windows) and the main thread, and
it rings between two steps of Python: inside one long call of C code, or in a
loop that catches everything, it is heard late or never. Grading therefore runs
answers in a process that can be ended (`attnbook.grade`).
"""

import contextlib
import io
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator

import torch

from attnbook.profiling.allocations import PeakMeter

SECONDS, CHARACTERS, SHOWN = 10.0, 100_000, 2_000
SLACK = 2**17  # bytes of objects that any call of Python's makes


class Stopped(BaseException):
    """A learner's code ran into a limit; `except Exception` does not catch it."""

    def __init__(self, slug: str):
        self.slug = slug


class Printed(io.StringIO):
    """What an answer prints."""

    def write(self, text: str) -> int:
        """Keep a text; stop if more has been written than can be meant."""
        if self.tell() + len(text) > CHARACTERS:
            raise Stopped("too-much")
        return super().write(text)


@contextlib.contextmanager
def limit_output(shown: int = SHOWN) -> Iterator[None]:
    """Show the first characters of what an answer prints; stop a flood."""
    printed = Printed()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield
    sys.stdout.write(printed.getvalue()[:shown])


@contextlib.contextmanager
def limit_time() -> Iterator[None]:
    """Stop what runs longer than SECONDS of work, or three times as long in all.

    The alarm rings again each second. One that was set before is restored with its
    remaining time.
    """
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "setitimer")):
        yield
        return
    worked, began = time.process_time(), time.monotonic()

    def ring(number, frame):
        work, wait = time.process_time() - worked, time.monotonic() - began
        if work >= 0.9 * SECONDS or wait >= 3 * SECONDS:
            raise Stopped("too-long")

    before = signal.signal(signal.SIGALRM, ring)
    left, again = signal.setitimer(signal.ITIMER_REAL, SECONDS, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, again)
        signal.signal(signal.SIGALRM, before)


class MemoryLimit(PeakMeter):
    """Raises MemoryError when a call holds more bytes than a limit.

    Tensors count that PyTorch's operations return and that are still held,
    without the inputs of the call and their views. What Python allocates, such
    as NumPy's arrays and lists, counts too.
    """

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def __enter__(self):
        with PeakMeter():  # the first one imports much of PyTorch
            torch.ones(1).neg()
        tracemalloc.start()
        return super().__enter__()

    def __exit__(self, *raised):
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        super().__exit__(*raised)
        if raised[0] is None:
            self.compare(most - SLACK, "arrays and lists")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and count what is held after it."""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.compare(self.peak_bytes, "tensors")
        return result

    def compare(self, most: int, what: str) -> None:
        """Raise MemoryError if more is held than the limit."""
        if most > self.limit:
            raise MemoryError(
                f"{most:,} bytes of {what} are in memory at once, and "
                f"{self.limit:,} are allowed"
            )
