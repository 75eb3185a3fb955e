"""The grader's end of a process with a student's notebook in it.

Chapter: all of them
Source: none
Axes: none
"""

import multiprocessing
import os
import pickle
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attnbook.exercises.limits import crowd
from attnbook.grade import nursery, wire
from attnbook.grade.fences import Limits

PATIENCE = 60.0  # seconds until a new process has to say that it is there
MOST = 10.0  # times as long as that the grader waits on a busy machine


def unhurried(seconds: float) -> float:
    """Return how long to wait for what takes so long on an idle machine."""
    return seconds * min(crowd(), MOST)


class GoneError(Exception):
    """The process said nothing in time, ended, or said what it should not."""


class Room:
    """A fresh process; ask it, and close it. One at a time."""

    def __init__(self, limits: Limits):
        self.folder = tempfile.mkdtemp(prefix="attnbook-")
        self.wire, theirs = socket.socketpair()
        self.end = started(theirs, self.folder, limits)
        theirs.close()
        self.fences: list[str] = []

    def ask(self, seconds: float, *what) -> dict:
        """Send a question and return the answer.

        Raises:
            GoneError: if none comes.
        """
        mark = secrets.token_bytes(wire.MARK)
        kind = wire.CELL if what[0] == "cell" else wire.ATTEMPT
        try:
            self.wire.settimeout(seconds)
            wire.send(self.wire, kind + mark + pickle.dumps(what))
        except OSError as error:
            raise GoneError("it ended its own process") from error
        return self.hear(seconds, mark)

    def hear(self, seconds: float, mark: bytes = b"") -> dict:
        """Return what the process says to the question with this mark.

        What else it says is sent ahead, or late, and is not heard.
        """
        ends = time.monotonic() + seconds
        try:
            while True:
                left = max(ends - time.monotonic(), 1e-3)
                raw = wire.receive(self.wire, left)
                if raw.startswith(mark):
                    return wire.message(raw.removeprefix(mark))
        except TimeoutError as error:
            said = f"it was stopped after {seconds:.0f} seconds"
            raise GoneError(said) from error
        except (EOFError, OSError) as error:
            raise GoneError("it ended its own process") from error
        except ValueError as error:
            raise GoneError("it wrote into the grader's wire") from error

    def close(self) -> None:
        """End the process with all that it started, and its folder."""
        self.wire.close()
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def started(theirs: socket.socket, folder: str, limits: Limits) -> Callable:
    """Start a process at the other end of the wire; return what ends it."""
    if hasattr(os, "fork"):
        return nursery.born(theirs, folder, limits)
    from attnbook.grade import inside  # imports torch

    process = multiprocessing.get_context("spawn").Process(
        target=inside.serve, args=(theirs, folder, limits)
    )
    process.start()
    return process.kill


@contextmanager
def room(limits: Limits) -> Iterator[Room]:
    """Open a room, and close it whatever happens."""
    opened = Room(limits)
    try:
        opened.fences = opened.hear(unhurried(PATIENCE))["fences"]
        yield opened
    finally:
        opened.close()
