"""The process that runs a student's notebook and returns outcomes as data.

It is forked from one that has imported PyTorch (see `fork_server`). The checks,
their solutions and the grader are hidden before the first cell runs; what was
patched is restored before the first attempt, and a ready-made attention raises
an error from then on (see `blocked_kernels`).
"""

import io
import json
import os
import pickle
import socket
import sys
import types

import torch

from attnbook.exercises import backward_pass, guard, limits, result, runner
from attnbook.exercises.outcome import Case
from attnbook.grade import (
    blocked_kernels,
    messages,
    process_limits,
    snapshots,
    submission,
)

# Once, in the process that all others are forked from.
backward_pass.preload_backward()
MISSING = object()


def serve(end: socket.socket, folder: str, most: process_limits.Limits) -> None:
    """Answer the grader's requests until it disconnects."""
    torch.set_num_threads(1)
    sys.stdin = io.StringIO()
    close_files(end.fileno())
    up = process_limits.apply_limits(folder, most)
    private = snapshots.hide_modules()
    student = StudentSession(private, most)
    send_reply(end, b"", {"limits": up})
    while True:
        try:
            raw = messages.receive(end, most=2**32)
        except (EOFError, OSError):
            return
        if not raw.startswith(messages.CELL):
            student.snapshot.restore()
        begin = 1 + messages.MARK
        try:
            reply = student.run_request(*student.load(raw[begin:]))
        except Exception as fault:  # an error of the grader, not of the student
            reply = {"fault": runner.format_error(fault)}
        send_reply(end, raw[1:begin], reply)


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
    """The namespace of a notebook's cells, and its attempts."""

    def __init__(self, private: dict, most: process_limits.Limits):
        self.private, self.most = private, most
        self.attempts: dict[str, object] = {}
        self.snapshot = snapshots.Snapshot(private.values())
        self.module = types.ModuleType("__main__")
        vars(self.module)["display"] = lambda *things, **options: None
        setattr(self.module, submission.HOOK, self.record_attempt)
        sys.modules["__main__"] = self.module

    def record_attempt(self, name: str, attempt: object) -> snapshots.Inert:
        """Record the argument of a check."""
        self.attempts[name] = attempt
        return snapshots.Inert()

    def load(self, raw: bytes) -> tuple:
        """Unpickle a request of the grader, which is trusted."""
        return Unpickler(io.BytesIO(raw), self.private).load()

    def run_request(self, what: str, *about) -> dict:
        """Run a cell or an attempt."""
        return (
            self.run_cell(*about)
            if what == "cell"
            else self.run_attempt(*about)
        )

    def run_cell(self, number: int, code: str) -> dict:
        """Run one cell; return the error that it raises, if any."""
        error = None
        try:
            with limits.limit_time(self.most.cell), limits.limit_output(0):
                exec(compile(code, f"cell {number}", "exec"), vars(self.module))
        except limits.Stopped as stopped:
            error = stopped.slug
        except BaseException as raised:
            error = runner.format_error(raised)
        self.snapshot.restore_modules()
        return {"error": error}

    def run_attempt(
        self, name: str, trials: list, forbidden: frozenset
    ) -> dict:
        """Call an attempt on every case of every trial."""
        if forbidden & guard.ATTENTION:
            blocked_kernels.block_kernels()
        attempt = self.attempts.get(name, MISSING)
        if attempt is MISSING:
            return {"missing": True}
        if not callable(attempt):
            kind = f"an object of type {type(attempt).__name__}"
            return {"kind": kind}
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
                    "rounds": [
                        [messages.pack_outcome(x) for x in r] for r in rounds
                    ],
                    "left": [pack_tensors(given) for given in left],
                }
            )
        return {"trials": results}


def pack_tensors(given: list) -> list:
    """Return the inputs that are tensors, as JSON can hold them."""
    return [
        messages.pack(result.copy_numbers(x))
        if isinstance(x, torch.Tensor)
        else None
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
                x
                for x in finders
                if not isinstance(x, snapshots.EmptyModuleFinder)
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
