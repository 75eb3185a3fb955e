"""The grader's end of a process with a student's notebook in it.

Chapter: all of them
Source: none
Axes: none
"""

import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from attnbook.grade import wire
from attnbook.grade.fences import Limits

PATIENCE = 60.0  # seconds until a new process has to say that it is there


class GoneError(Exception):
    """The process said nothing in time, ended, or said what it should not."""


class Room:
    """A fresh process; ask it, and close it."""

    def __init__(self, limits: Limits):
        self.folder = tempfile.mkdtemp(prefix="attnbook-")
        context = start_method()
        self.wire, theirs = context.Pipe()
        from attnbook.grade import inside  # imports torch

        self.process = context.Process(
            target=inside.serve, args=(theirs, self.folder, limits)
        )
        started(self.process)
        theirs.close()
        self.fences: list[str] = []

    def ask(self, seconds: float, *what) -> dict:
        """Send a question and return the answer.

        Raises:
            GoneError: if none comes.
        """
        try:
            kind = wire.CELL if what[0] == "cell" else wire.ATTEMPT
            self.wire.send_bytes(kind + pickle.dumps(what))
        except OSError as error:
            raise GoneError("it ended its own process") from error
        return self.hear(seconds)

    def hear(self, seconds: float) -> dict:
        """Return what the process says next."""
        try:
            if not self.wire.poll(seconds):
                raise GoneError(f"it was stopped after {seconds:.0f} seconds")
            return wire.message(self.wire.recv_bytes(wire.LARGEST))
        except (EOFError, OSError) as error:
            raise GoneError("it ended its own process") from error
        except ValueError as error:
            raise GoneError("it wrote into the grader's wire") from error

    def close(self) -> None:
        """End the process with all that it started, and its folder."""
        self.wire.close()
        if hasattr(os, "killpg") and self.process.pid:
            for kill in (os.killpg, os.kill):
                try:
                    kill(self.process.pid, signal.SIGKILL)
                except OSError:
                    continue  # it is gone, or has not made its group yet
        else:
            self.process.kill()
        self.process.join(10)
        shutil.rmtree(self.folder, ignore_errors=True)


def started(process: multiprocessing.process.BaseProcess) -> None:
    """Start a process, even while the server that forks it starts anew."""
    for pause in (0.2, 1.0, 5.0):
        try:
            return process.start()
        except ConnectionError:
            time.sleep(pause)
    return process.start()


def start_method() -> multiprocessing.context.BaseContext:
    """Return how processes start: forked from one that has imported PyTorch."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attnbook.grade.inside"])
    return context


@contextmanager
def room(limits: Limits) -> Iterator[Room]:
    """Open a room, and close it whatever happens."""
    opened = Room(limits)
    try:
        opened.fences = opened.hear(PATIENCE)["fences"]
        yield opened
    finally:
        opened.close()
