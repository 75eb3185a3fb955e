"""The process that runs a student's notebook and returns outcomes as data.

It is forked from one that has imported PyTorch (see `fork_server`). The
checks, their solutions and the grader are hidden before the first cell runs. A
call of a check hands the attempt over: a fork of this process, in which
patches are taken back and a ready-made attention raises an error (see
`blocked_kernels`), runs it at once, so that it is judged as it was when its
check ran, and so that it cannot end or change the process of the cells.
"""

import contextlib
import dataclasses
import importlib
import io
import json
import linecache
import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import types
from collections.abc import Callable

import torch

from attnbook.exercises import backward_pass, guard, limits, result, runner
from attnbook.exercises.outcome import Case
from attnbook.grade import (
    blocked_kernels,
    messages,
    process_limits,
    snapshots,
    source_check,
    submission,
)
from attnbook.grade.clock import Clock

# Once, in the process that all others are forked from: each attempt would
# import `numpy.random` anew, to seed it, and most notebooks import jaxtyping.
backward_pass.preload_backward()
submission.parse_cell("")
for module in ("jaxtyping", "numpy.random"):
    importlib.import_module(module)
SIZE, SECONDS = struct.Struct("!Q"), messages.SECONDS


def serve(end: socket.socket, folder: str, most: process_limits.Limits) -> None:
    """Answer the grader's requests until it disconnects."""
    torch.set_num_threads(1)
    sys.stdin = io.StringIO()
    close_files(end.fileno())
    memory = mmap.mmap(-1, SIZE.size + messages.LARGEST)  # shared with attempts
    up = process_limits.apply_limits(folder, most)
    student = StudentSession(end, memory, most)
    send_reply(end, b"", {"limits": up})
    while True:
        try:
            raw = messages.receive(end, most=2**32)
        except (EOFError, OSError):
            return
        student.mark = raw[: messages.MARK]
        try:
            reply = student.run_request(*student.load(raw[messages.MARK :]))
        except Exception as fault:  # an error of the grader, not of the student
            reply = {"fault": runner.format_error(fault)}
        send_reply(end, student.mark, reply)


def close_files(but: int) -> None:
    """Close every file but one; redirect the standard streams to null."""
    with open(os.devnull, "r+b") as nothing:
        for stream in range(3):
            os.dup2(nothing.fileno(), stream)
    os.closerange(3, but)
    os.closerange(but + 1, 256)


def send_reply(end: socket.socket, mark: bytes, reply: dict) -> None:
    """Send an answer as JSON, after the mark of its request."""
    messages.send(end, mark + json.dumps(reply).encode())


class StudentSession:
    """The namespace of a notebook's cells, and what the grader asks of it.

    Args:
        end: the socket to the grader.
        memory: where the process of an attempt leaves its outcomes.
        most: the limits.
    """

    def __init__(
        self, end: socket.socket, memory: mmap.mmap, most: process_limits.Limits
    ):
        self.end, self.memory, self.most = end, memory, most
        self.mark = b""
        self.finder = snapshots.EmptyModuleFinder(self.hand_over)
        self.private = snapshots.hide_modules(self.finder)
        self.snapshot = snapshots.Snapshot(self.private.values())
        self.changes: list[snapshots.Change] = []
        self.clock = Clock(self.end_process)
        self.recursion = sys.getrecursionlimit()
        self.rights = process_limits.read_limits()
        self.prepared: submission.Prepared | None = None
        self.module = types.ModuleType("__main__")
        inert = snapshots.Inert()
        vars(self.module)["display"] = lambda *things, **options: None
        vars(self.module)["get_ipython"] = lambda: inert
        sys.modules["__main__"] = self.module

    def load(self, raw: bytes) -> tuple:
        """Unpickle a request of the grader, which is trusted."""
        return Unpickler(io.BytesIO(raw), self.private).load()

    def run_request(self, what: str, *about) -> dict:
        """Prepare the notebook, search it, or run a cell."""
        known: dict[str, Callable[..., dict]] = {
            "read": self.read_notebook,
            "checks": self.declare_checks,
            "cell": self.run_cell,
        }
        return known[what](*about)

    def read_notebook(self, raw: bytes) -> dict:
        """Return a notebook's cells; no code of the student has run yet."""
        try:
            self.prepared = submission.prepare(raw)
        except ValueError as error:
            return {"error": str(error)}
        return {"cells": [dataclasses.asdict(c) for c in self.prepared.cells]}

    def declare_checks(self, checks: dict) -> dict:
        """Take the names of all checks; return what the source says of them."""
        for key in checks:
            chapter, _, name = key.partition(".")
            self.finder.checks.setdefault(chapter, []).append(name)
        if self.prepared is None:  # in a process that replaces another
            return {}
        found = source_check.search(self.prepared, checks)
        return {"ready": [[n, named] for n, named in found.items()]}

    def run_cell(self, number: int, code: str, seconds: float) -> dict:
        """Run one cell; return the error that it raises, if any."""
        error, name = None, f"<cell {number}>"
        lines = code.splitlines(keepends=True)
        linecache.cache[name] = len(code), None, lines, name
        self.snapshot.repeat(self.changes)
        try:
            with self.clock.limit(seconds), limits.limit_output(0):
                exec(compile(code, name, "exec"), vars(self.module))
        except limits.Stopped as stopped:
            error = stopped.slug
        except BaseException as raised:
            error = runner.format_error(raised)
        sys.setrecursionlimit(self.recursion)
        self.changes = self.snapshot.restore()
        if self.rights != process_limits.read_limits():
            error = "it lowered a limit of its own process"
            return {"error": error, "fatal": True}
        return {"error": error}

    def end_process(self) -> None:
        """End the process of a cell that catches every alarm."""
        try:
            reply = b'{"error": "too-long", "fatal": true}'
            messages.send(self.end, self.mark + reply)
        finally:
            os._exit(0)

    def hand_over(self, key: str, attempt: object) -> None:
        """Have the grader judge an attempt as it is now, in the main thread.

        A check that is called in another thread is not graded.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        sys.setrecursionlimit(self.recursion)
        with self.clock.paused():
            changes = self.snapshot.restore()
            try:
                send_reply(self.end, self.mark, {"check": key})
                raw = messages.receive(self.end, most=2**32)
                mark, request = raw[: messages.MARK], raw[messages.MARK :]
                if request:  # nothing if this check is not to be judged
                    send_reply(self.end, mark, self.answer(attempt, request))
            finally:
                self.snapshot.repeat(changes)

    def answer(self, attempt: object, request: bytes) -> dict:
        """Return the outcomes of an attempt."""
        if not callable(attempt):
            kind = f"an object of type {type(attempt).__name__}"
            return {"kind": kind}
        if not hasattr(os, "fork"):
            return self.run_attempt(attempt, *self.load(request[SECONDS.size :]))
        self.memory[: SIZE.size] = SIZE.pack(0)
        try:
            pid = os.fork()
        except OSError as error:
            return {"gone": f"no process could be started for it: {error}"}
        if not pid:
            self.run_apart(attempt, request)
        (seconds,) = SECONDS.unpack(request[: SECONDS.size])
        late = wait_and_kill(pid, seconds)
        (size,) = SIZE.unpack(self.memory[: SIZE.size])
        if late:
            message = f"it was stopped after {seconds:.0f} seconds"
            return {"gone": message, "late": True}
        if not 0 < size <= messages.LARGEST:
            return {"gone": "it ended its own process"}
        raw = self.memory[SIZE.size : SIZE.size + size]
        return messages.parse_message(raw)

    def run_apart(self, attempt: Callable, request: bytes) -> None:
        """Run an attempt in a process of its own, and end that process."""
        try:
            os.setpgid(0, 0)
            self.end.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            torch.set_num_threads(1)
            try:
                reply = self.run_attempt(attempt, *self.load(request[SECONDS.size :]))
            except Exception as fault:
                reply = {"fault": runner.format_error(fault)}
            raw = json.dumps(reply).encode()
            if len(raw) > messages.LARGEST:
                raw = b'{"gone": "its outcomes are too large"}'
            self.memory[SIZE.size : SIZE.size + len(raw)] = raw
            self.memory[: SIZE.size] = SIZE.pack(len(raw))
        finally:
            os._exit(0)

    def run_attempt(
        self, attempt: Callable, trials: list, forbidden: frozenset
    ) -> dict:
        """Call an attempt on every case of every trial."""
        if forbidden & guard.ATTENTION and hasattr(os, "fork"):
            blocked_kernels.block_kernels()
        results, stopped = [], False
        for cases in trials:
            if stopped:
                break
            left: list[list] = []
            drawn = tuple(Case(*case) for case in cases)
            rounds = runner.run_rounds(
                attempt, drawn, forbidden, 0, left, self.most.call
            )
            self.snapshot.restore()
            stopped = any(x.stopped for r in rounds for x in r)
            results.append(
                {
                    "rounds": [[messages.pack_outcome(x) for x in r] for r in rounds],
                    "left": [pack_tensors(given) for given in left],
                }
            )
        return {"trials": results}


def wait_and_kill(pid: int, seconds: float) -> bool:
    """Wait for a child and kill what it started; tell whether it was late."""
    ends, pause, late = time.monotonic() + seconds, 0.0005, False
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if late := time.monotonic() > ends:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                break
            time.sleep(pause)
            pause = min(1.2 * pause, 0.01)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    return late


def pack_tensors(given: list) -> list:
    """Return the inputs that are tensors, as JSON can hold them."""
    return [
        messages.pack(result.copy_numbers(x)) if isinstance(x, torch.Tensor) else None
        for x in given
    ]


class Unpickler(pickle.Unpickler):
    """Finds classes of the exercises among the modules that were hidden."""

    def __init__(self, file: io.BytesIO, private: dict):
        super().__init__(file)
        self.private = private

    def find_class(self, module: str, name: str):
        """Return a class; hidden modules are visible during the call."""
        if not module.startswith("attnbook.exercises."):
            return super().find_class(module, name)
        now, finders = dict(sys.modules), list(sys.meta_path)
        try:
            sys.meta_path[:] = [
                x for x in finders if not isinstance(x, snapshots.EmptyModuleFinder)
            ]
            for key in filter(snapshots.is_hidden, now):
                del sys.modules[key]
            sys.modules.update(self.private)
            return super().find_class(module, name)
        finally:
            sys.meta_path[:] = finders
            for key in filter(snapshots.is_hidden, list(sys.modules)):
                self.private[key] = sys.modules.pop(key)
            sys.modules.update(now)
