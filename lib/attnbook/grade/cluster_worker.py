"""A cluster worker's end of grading: a process that grades one at a time.

A worker runs tasks in threads, and its own process may belong to others' work
as well. Each of its threads therefore has a process for grading, in which the
limits and the verdicts are those of a single machine. That process stays for
later notebooks, because importing PyTorch takes longer than grading does, and
ends with the worker.
"""

import contextlib
import functools
import hashlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from attnbook.grade import batch
from attnbook.grade.process_limits import Limits

BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
    "from attnbook.grade import cluster_worker\n"
    "cluster_worker.serve()"
)
PLACE = Path(__file__).parents[1]
OWN = threading.local()


class OtherBookError(Exception):
    """A worker has another version of this book, or of PyTorch."""


@functools.cache
def describe_book() -> str:
    """Return what verdicts depend on: this book's code, and PyTorch's version.

    Two installed copies with the same code are described by the same words.
    """
    digest = hashlib.sha256()
    for file in sorted(PLACE.rglob("*.py")):
        digest.update(file.relative_to(PLACE).as_posix().encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    torch = version("torch").partition("+")[0]
    return f"attnbook with code {digest.hexdigest()[:12]} and PyTorch {torch}"


def grade_on_worker(raw: bytes, seed: int, limits: Limits, book: str) -> dict:
    """Grade one notebook; this is the task of the cluster.

    Args:
        raw: the notebook.
        seed: from it, the second inputs of every exercise are drawn.
        limits: of the process that runs the notebook.
        book: what `describe_book` returns where the results are wanted.

    Raises:
        OtherBookError: if this worker's book is another one.
        EOFError: if its process for grading is killed twice.
    """
    for last in (False, True):
        process = get_process()
        try:
            own, result = process.grade(raw, seed, limits)
        except (OSError, EOFError):
            own, result = "", {}
        if own == book:
            return result
        process.close()  # it was killed, or the book has changed since it began
        del OWN.process
        if last and own:
            raise OtherBookError(f"{book} is expected, and a worker has {own}")
    raise EOFError("the process that grades was killed twice")


def get_process() -> "GradingProcess":
    """Return this thread's process for grading."""
    if not hasattr(OWN, "process"):
        OWN.process = GradingProcess()
    return OWN.process


class GradingProcess:
    """The worker's end of a process that grades."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def grade(
        self, raw: bytes, seed: int, limits: Limits
    ) -> tuple[str, dict[str, Any]]:
        """Return which book the process has, and a notebook's result.

        Raises:
            OSError: if the process has ended.
            EOFError: if it ends before it replies.
        """
        assert self.process.stdin and self.process.stdout
        pickle.dump((raw, seed, limits), self.process.stdin)
        self.process.stdin.flush()
        if not (line := self.process.stdout.readline()).endswith(b"\n"):
            raise EOFError("the process that grades has ended")
        book, result = json.loads(line)
        return book, result

    def close(self) -> None:
        """Disconnect; the process then ends."""
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        except OSError:  # it has ended with a request unread
            self.process.wait()


# What follows runs in the process that grades.


def serve() -> None:
    """Grade on request, until the worker disconnects or is killed.

    A notebook that is being graded then is abandoned: the worker's cluster
    gives it to another.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write to the worker
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    requests: queue.Queue[tuple[bytes, int, Limits]] = queue.Queue()
    book = describe_book()
    threading.Thread(
        target=read_requests, args=(sys.stdin.buffer, requests), daemon=True
    ).start()
    while True:
        raw, seed, limits = requests.get()
        result = batch.grade_one(raw, seed, limits)
        replies.write(json.dumps([book, result]).encode() + b"\n")
        replies.flush()


def read_requests(source: BinaryIO, requests: queue.Queue) -> None:
    """Pass requests on; end this process when there will be no more."""
    with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            requests.put(pickle.load(source))
    os.kill(os.getpid(), signal.SIGTERM)
