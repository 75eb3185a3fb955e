"""The grader's end of a process with a student's notebook in it."""

import contextlib
import multiprocessing
import os
import pickle
import secrets
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator

from attnbook.exercises.limits import measure_load
from attnbook.grade import files, fork_server, messages
from attnbook.grade.process_limits import Limits

PATIENCE = 60.0  # seconds within which a new process must report
MAX_SCALE = 10.0  # most by which a busy machine stretches a timeout


def scale_timeout(seconds: float) -> float:
    """Return a timeout, stretched by the load of the machine."""
    return seconds * min(measure_load(), MAX_SCALE)


class GoneError(Exception):
    """The process did not answer in time, ended, or sent invalid data."""


class Sandbox:
    """A new process for one notebook; only one exists at a time."""

    def __init__(self, limits: Limits):
        self.folder = tempfile.mkdtemp(prefix="attnbook-")
        self.channel, theirs = socket.socketpair()
        self.kill = start_process(theirs, self.folder, limits)
        theirs.close()
        self.limits_set: list[str] = []

    def request(self, seconds: float, *what) -> dict:
        """Send a request and return the answer.

        Raises:
            GoneError: if no answer arrives.
        """
        mark = self.send(seconds, pickle.dumps(what))
        return self.receive(seconds, mark)

    def send(self, seconds: float, raw: bytes) -> bytes:
        """Send a request and return its mark.

        Raises:
            GoneError: if it cannot be sent.
        """
        mark = secrets.token_bytes(messages.MARK)
        try:
            self.channel.settimeout(seconds)
            messages.send(self.channel, mark + raw)
        except OSError as error:
            raise GoneError("it ended its own process") from error
        return mark

    def watch(self, seconds: float, work: float) -> None:
        """Wait until a message begins to arrive.

        Raises:
            GoneError: if the process computes for longer than `work` seconds
                meanwhile, or if nothing arrives in `seconds`.
        """
        ends = time.monotonic() + seconds
        before, pause = self.read_time(), min(1.0, work / 4)
        while (left := ends - time.monotonic()) > 0:
            if select.select([self.channel], [], [], min(left, pause))[0]:
                return
            if self.read_time() - before > work:
                break
        raise GoneError(f"it was stopped after {min(seconds, work):.0f} seconds")

    def read_time(self) -> float:
        """Return the processor time of the process, where it can be read."""
        known = getattr(self.kill, "args", ())
        pids = {*known}.union(*map(fork_server.list_children, known))
        return sum(map(fork_server.read_processor_time, pids))

    def receive(self, seconds: float, mark: bytes = b"") -> dict:
        """Return the answer to the request with this mark.

        Messages with another mark were sent too early or too late and are
        ignored.
        """
        ends = time.monotonic() + seconds
        try:
            while True:
                left = max(ends - time.monotonic(), 1e-3)
                raw = messages.receive(self.channel, left)
                if raw.startswith(mark):
                    return messages.parse_message(raw.removeprefix(mark))
        except TimeoutError as error:
            message = f"it was stopped after {seconds:.0f} seconds"
            raise GoneError(message) from error
        except (EOFError, OSError) as error:
            raise GoneError("it ended its own process") from error
        except ValueError as error:
            raise GoneError("it wrote to the grader's socket") from error

    def close(self) -> None:
        """Kill the process and all that it started; delete its folder."""
        self.channel.close()
        self.kill()
        files.remove_folder(self.folder)


def start_process(theirs: socket.socket, folder: str, limits: Limits) -> Callable:
    """Start a process at the other end and return a function to kill it."""
    if hasattr(os, "fork"):
        return fork_server.start_child(theirs, folder, limits)
    from attnbook.grade import student_process  # imports torch

    process = multiprocessing.get_context("spawn").Process(
        target=student_process.serve, args=(theirs, folder, limits)
    )
    process.start()
    return process.kill


@contextlib.contextmanager
def open_sandbox(limits: Limits) -> Iterator[Sandbox]:
    """Open a sandbox and close it in any case."""
    opened = Sandbox(limits)
    try:
        opened.limits_set = opened.receive(scale_timeout(PATIENCE))["limits"]
        yield opened
    finally:
        opened.close()
