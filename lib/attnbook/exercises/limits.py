"""Limits on a call of a learner's function: time, printed text and memory.

The alarm needs a platform that has one (not Windows) and the main thread, and
it rings between two steps of Python: inside one long call of C code, or in a
loop that catches everything, it is heard late or never. Grading therefore runs
answers in a process that can be ended (`attnbook.grade`).
"""

import contextlib
import io
import os
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator

import torch

from attnbook.profiling.allocations import PeakMeter

SECONDS, CHARACTERS, SHOWN = 10.0, 100_000, 2_000
RING = 1.0  # seconds from one ring of the alarm to the next
SLACK = 2**17  # bytes of objects that any call of Python's makes


class Stopped(BaseException):
    """A learner's code was stopped; `except Exception` does not catch it."""

    slug = ""


class TooLong(Stopped):
    """It ran longer than the limit."""

    slug = "too-long"


class TooMuch(Stopped):
    """It printed more than the limit."""

    slug = "too-much"


class Printed(io.StringIO):
    """What an answer prints."""

    def write(self, text: str) -> int:
        """Keep a text.

        Raises:
            TooMuch: if more has been written than can be meant.
        """
        if self.tell() + len(text) > CHARACTERS:
            raise TooMuch
        return super().write(text)


@contextlib.contextmanager
def limit_output(shown: int = SHOWN) -> Iterator[None]:
    """Show the first characters of what an answer prints; stop a flood."""
    printed = Printed()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield
    sys.stdout.write(printed.getvalue()[:shown])


def measure_load() -> float:
    """Return the number of runnable processes per core; at least 1."""
    if not hasattr(os, "getloadavg"):
        return 1.0
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@contextlib.contextmanager
def limit_time(seconds: float | None = None) -> Iterator[None]:
    """Raise TooLong after some seconds, then again each second, if possible.

    The seconds are of work, or three times as many of waiting. An alarm that was
    set before is restored with its remaining time.
    """
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "setitimer")):
        yield
        return
    most = seconds or SECONDS
    worked, began = time.process_time(), time.monotonic()

    def ring(number, frame):
        work, wait = time.process_time() - worked, time.monotonic() - began
        if work >= 0.9 * most or wait >= 3 * most:
            raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    left, again = signal.setitimer(signal.ITIMER_REAL, most, RING)
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
        self.limit, self.tracing, self.before = limit, False, 0

    def __enter__(self):
        self.tracing = tracemalloc.is_tracing()
        if not self.tracing:
            with PeakMeter():  # the first one imports much of PyTorch
                torch.ones(1).neg()
            tracemalloc.start()
        tracemalloc.reset_peak()
        self.before = tracemalloc.get_traced_memory()[0]
        return super().__enter__()

    def __exit__(self, *raised):
        most = tracemalloc.get_traced_memory()[1] - self.before
        if not self.tracing:
            tracemalloc.stop()
        super().__exit__(*raised)
        if raised[0] is None and most > self.limit + SLACK:
            raise self.make_error(most, "arrays and lists")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and count what is held after it.

        Raises:
            MemoryError: if the limit is exceeded.
        """
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.peak_bytes > self.limit:
            raise self.make_error(self.peak_bytes, "tensors")
        return result

    def make_error(self, most: int, what: str) -> MemoryError:
        """Return the error that names what is held, and the limit."""
        return MemoryError(
            f"{most:,} bytes of {what} are in memory at once, and "
            f"{self.limit:,} are allowed"
        )
