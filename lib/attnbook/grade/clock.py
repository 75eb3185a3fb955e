"""The time limit of a cell, which ends a process that does not stop."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

from attnbook.exercises.limits import TooLong, measure_load

RINGS = 3  # alarms that a cell may catch before its process is ended
RING = 1.0  # most seconds between two of them


class Clock:
    """Limits a cell's seconds of work, or three times as many of waiting.

    Args:
        end: ends the process of a cell that catches the alarms.
    """

    def __init__(self, end: Callable[[], None]):
        self.end, self.seconds, self.rings = end, 0.0, 0
        self.worked = self.began = 0.0

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise TooLong when the time is over, and again after each ring."""
        if not hasattr(signal, "setitimer"):
            yield
            return
        self.seconds, self.rings = seconds, 0
        self.worked, self.began = time.process_time(), time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.signal(signal.SIGALRM, self.ring)
        self.start(seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def start(self, seconds: float) -> None:
        """Set the alarm."""
        ring = min(RING, self.seconds / 10)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), ring)

    def ring(self, number: int, frame) -> None:
        """Stop the cell if its time is over.

        Raises:
            TooLong: if it is.
        """
        work = time.process_time() - self.worked
        wait = time.monotonic() - self.began
        most = 3 * measure_load() * self.seconds
        if work >= 0.9 * self.seconds or wait >= most:
            self.rings += 1
            if self.rings > RINGS:
                self.end()
            raise TooLong

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock while the grader's own code runs."""
        if not hasattr(signal, "setitimer"):
            yield
            return
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        before = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self.began += time.monotonic() - before[0]
            self.worked += time.process_time() - before[1]
            self.start(left)
