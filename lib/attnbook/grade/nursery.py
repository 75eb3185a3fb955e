"""The process that forks one for each notebook, and ends what is left of it.

It has imported PyTorch and computed nothing, so that a fork is quick and clean.
Python's own fork server listens at an address, where a student's code could
have it start what it likes, without fences; this one has none. What a room
leaves behind becomes a child of this process (on Linux), which ends it.

Chapter: all of them
Source: none
Axes: none
"""

import atexit
import ctypes
import dataclasses
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attnbook.grade.fences import Limits

PATIENCE = 300.0  # seconds that the import of PyTorch may take
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2])\n"
    "from attnbook.grade import nursery; nursery.serve(int(sys.argv[1]))"
)
ADOPT = 36  # PR_SET_CHILD_SUBREAPER


class Nursery:
    """The grader's end: one room at a time is born, and ended."""

    def __init__(self):
        self.wire, theirs = socket.socketpair()
        self.wire.settimeout(PATIENCE)
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    BEGIN,
                    str(number),
                    json.dumps(sys.path),
                ],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def ask(self, what: dict, files: tuple[int, ...] = ()) -> int:
        """Send a wish, and return the number of the process it is about.

        Raises:
            OSError: if the nursery is gone.
        """
        socket.send_fds(self.wire, [json.dumps(what).encode()], files)
        said = self.wire.recv(64)
        if not said:
            raise ConnectionError("the nursery is gone")
        return int(said)

    def close(self) -> None:
        """Hang up; it ends what it forked, then itself."""
        self.wire.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


@functools.cache
def nursery() -> Nursery:
    """Return this process's nursery."""
    return Nursery()


def born(wire: socket.socket, folder: str, limits: Limits) -> Callable:
    """Start a room's process at the other end of a wire; return what ends it.

    If the nursery was killed, there is a new one.
    """
    what = {"folder": folder, "limits": dataclasses.asdict(limits)}
    try:
        pid = nursery().ask(what, (wire.fileno(),))
    except OSError:
        nursery().close()
        nursery.cache_clear()
        pid = nursery().ask(what, (wire.fileno(),))
    return functools.partial(ended, pid)


def ended(pid: int) -> None:
    """End a room's process and all that it started."""
    try:
        nursery().ask({})
    except OSError:  # the nursery is gone: end what can be named
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except OSError:
                continue


# What follows runs in the nursery's own process.


def serve(number: int) -> None:
    """Fork and clear away as the grader wishes, until it hangs up."""
    from attnbook.grade import inside  # imports torch

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    end = socket.socket(fileno=number)
    pid = 0
    while True:
        raw, files, _, _ = socket.recv_fds(end, 2**16, 1)
        clear(pid)
        if not raw:
            return
        pid = 0
        if files:
            what = json.loads(raw)
            if not (pid := os.fork()):
                try:
                    inside.serve(
                        socket.socket(fileno=files[0]),
                        what["folder"],
                        Limits(**what["limits"]),
                    )
                finally:
                    os._exit(0)
            os.close(files[0])
        end.sendall(str(pid).encode())


def clear(pid: int, seconds: float = 10.0) -> None:
    """End all children, their groups, and what they leave behind."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for child in children() or ({pid} - {0}):
            for kill in (os.killpg, os.kill):
                try:
                    kill(child, signal.SIGKILL)
                except OSError:
                    continue  # it is gone, or has made no group
        try:
            over = os.waitpid(-1, os.WNOHANG)[0]
        except ChildProcessError:
            return
        pid = 0 if over == pid else pid
        time.sleep(0 if over else 0.002)


def children() -> set[int]:
    """Return the numbers of this process's children, where that is told."""
    try:
        own = os.getpid()
        said = Path(f"/proc/{own}/task/{own}/children").read_text()
    except OSError:
        return set()
    return {int(x) for x in said.split()}
