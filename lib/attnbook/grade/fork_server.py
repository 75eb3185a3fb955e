"""A process that forks one child per notebook and kills what it leaves.

It has imported PyTorch and computed nothing, so that a fork is quick and clean.
Python's own fork server listens at an address, where a student's code could
make it start processes without limits; this one has no address. Processes that
a sandbox leaves behind become children of this process (on Linux), which kills
them.
"""

import atexit
import ctypes
import dataclasses
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attnbook.grade.process_limits import Limits, select_environment

PATIENCE = 300.0  # seconds that the import of PyTorch may take
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2])\n"
    "from attnbook.grade import fork_server\n"
    "fork_server.serve(int(sys.argv[1]))"
)
ADOPT = 36  # PR_SET_CHILD_SUBREAPER


class ForkServer:
    """The grader's end: starts and kills one sandboxed process at a time."""

    def __init__(self):
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(PATIENCE)
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
                env=select_environment(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def request(self, what: dict, files: tuple[int, ...] = ()) -> int:
        """Send a request; return the number of the process concerned.

        Raises:
            OSError: if the fork server has ended.
        """
        socket.send_fds(self.channel, [json.dumps(what).encode()], files)
        reply = self.channel.recv(64)
        if not reply:
            raise ConnectionError("the fork server has ended")
        return int(reply)

    def close(self) -> None:
        """Close the socket; the server then kills its children and ends."""
        self.channel.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


@functools.cache
def get_fork_server() -> ForkServer:
    """Return this process's fork server."""
    return ForkServer()


def start_child(channel: socket.socket, folder: str, limits: Limits) -> Callable:
    """Start a sandboxed process and return a function that kills it.

    If the fork server was killed, a new one is started.
    """
    what = {"folder": folder, "limits": dataclasses.asdict(limits)}
    try:
        pid = get_fork_server().request(what, (channel.fileno(),))
    except OSError:
        get_fork_server().close()
        get_fork_server.cache_clear()
        pid = get_fork_server().request(what, (channel.fileno(),))
    return functools.partial(end_child, pid)


def end_child(pid: int) -> None:
    """Kill a sandboxed process and every process that it started."""
    try:
        get_fork_server().request({})
    except OSError:  # no fork server: kill what has a number
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except OSError:
                continue


# What follows runs in the fork server's own process.


def serve(number: int) -> None:
    """Fork and kill processes on request, until the grader disconnects."""
    from attnbook.grade import student_process  # imports torch

    # Otherwise the first garbage collection in each child visits, and so
    # copies, every object of PyTorch's: half the time of a small notebook.
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    end = socket.socket(fileno=number)
    pid = 0
    while True:
        raw, files, _, _ = socket.recv_fds(end, 2**16, 1)
        kill_children(pid)
        if not raw:
            return
        pid = 0
        if files:
            what = json.loads(raw)
            if not (pid := os.fork()):
                try:
                    student_process.serve(
                        socket.socket(fileno=files[0]),
                        what["folder"],
                        Limits(**what["limits"]),
                    )
                finally:
                    os._exit(0)
            os.close(files[0])
        end.sendall(str(pid).encode())


def kill_children(pid: int, seconds: float = 10.0) -> None:
    """Kill all children, their process groups and their orphans."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for child in list_children(os.getpid()) or ({pid} - {0}):
            for kill in (os.killpg, os.kill):
                try:
                    kill(child, signal.SIGKILL)
                except OSError:
                    continue  # it has ended, or leads no group
        try:
            over = os.waitpid(-1, os.WNOHANG)[0]
        except ChildProcessError:
            return
        pid = 0 if over == pid else pid
        time.sleep(0 if over else 0.002)


def list_children(pid: int) -> set[int]:
    """Return the numbers of a process's children, if they are listed."""
    try:
        reply = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return set()
    return {int(x) for x in reply.split()}


def read_processor_time(pid: int) -> float:
    """Return how many seconds a process has computed; 0 if it is not known."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # Linux's clock of a process
    except (OSError, AttributeError, OverflowError):
        return 0.0
