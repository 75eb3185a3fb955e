"""The process that runs a student's notebook, and answers with numbers.

It is forked from one that has imported PyTorch (see `nursery`). The checks,
their solutions and the grader are taken out of the modules before the first
cell runs; what was patched is put back before the first attempt, and a
ready-made attention ends in an error from then on (see `barred`).

Chapter: all of them
Source: none
Axes: none
"""

import io
import json
import os
import pickle
import socket
import sys
import types

import torch

from attnbook.exercises import guard, limits, returned, runner, way_back
from attnbook.exercises.outcome import Case
from attnbook.grade import barred, fences, pristine, submission, wire

way_back.import_late()  # once, in the process that all others are forked from
MISSING = object()


def serve(end: socket.socket, folder: str, most: fences.Limits) -> None:
    """Answer what the grader asks, until it hangs up."""
    torch.set_num_threads(1)
    sys.stdin = io.StringIO()
    close_files(end.fileno())
    up = fences.fence(folder, most)
    private = pristine.hide()
    student = Student(private, most)
    answer(end, b"", {"fences": up})
    while True:
        try:
            raw = wire.receive(end, most=2**32)
        except (EOFError, OSError):
            return
        if not raw.startswith(wire.CELL):
            student.pristine.restore()
        begin = 1 + wire.MARK
        try:
            said = student.do(*student.load(raw[begin:]))
        except Exception as fault:  # not the student's: those are told
            said = {"fault": runner.one_line(fault)}
        answer(end, raw[1:begin], said)


def close_files(but: int) -> None:
    """Close every file but one; input and outputs lead nowhere."""
    with open(os.devnull, "r+b") as nothing:
        for stream in range(3):
            os.dup2(nothing.fileno(), stream)
    os.closerange(3, but)
    os.closerange(but + 1, 256)


def answer(end: socket.socket, mark: bytes, said: dict) -> None:
    """Send an answer as JSON, behind the mark of its question."""
    wire.send(end, mark + json.dumps(said).encode())


class Student:
    """A notebook's names, as far as its cells have run, and its attempts."""

    def __init__(self, private: dict, most: fences.Limits):
        self.private, self.most = private, most
        self.attempts: dict[str, object] = {}
        self.pristine = pristine.Snapshot(private.values())
        self.module = types.ModuleType("__main__")
        self.module.display = lambda *things, **options: None
        setattr(self.module, submission.HOOK, self.note)
        sys.modules["__main__"] = self.module

    def note(self, name: str, attempt: object) -> pristine.Inert:
        """Remember what a check was given."""
        self.attempts[name] = attempt
        return pristine.Inert()

    def load(self, raw: bytes) -> tuple:
        """Return what the grader, which is trusted, sent."""
        return Unpickler(io.BytesIO(raw), self.private).load()

    def do(self, what: str, *about) -> dict:
        """Run a cell, or try an attempt."""
        return self.cell(*about) if what == "cell" else self.attempt(*about)

    def cell(self, number: int, code: str) -> dict:
        """Run one cell; whatever it raises is told."""
        error = None
        try:
            with limits.alarm(self.most.cell), limits.output(0):
                exec(compile(code, f"cell {number}", "exec"), vars(self.module))
        except limits.Stopped as stopped:
            error = stopped.slug
        except BaseException as raised:
            error = runner.one_line(raised)
        self.pristine.restore_modules()
        return {"error": error}

    def attempt(self, name: str, trials: list, forbidden: frozenset) -> dict:
        """Call an attempt on every case of every trial."""
        if forbidden & guard.ATTENTION:
            barred.bar()
        attempt = self.attempts.get(name, MISSING)
        if attempt is MISSING:
            return {"missing": True}
        if not callable(attempt):
            kind = f"an object of type {type(attempt).__name__}"
            return {"kind": kind}
        told, stopped = [], False
        for cases in trials:
            if stopped:
                break
            left: list[list] = []
            drawn = tuple(Case(*case) for case in cases)
            rounds = runner.rounds(
                attempt, drawn, forbidden, 0, left, self.most.call
            )
            self.pristine.restore()
            stopped = any(x.stopped for r in rounds for x in r)
            told.append(
                {
                    "rounds": [[wire.said(x) for x in r] for r in rounds],
                    "left": [tensors(given) for given in left],
                }
            )
        return {"trials": told}


def tensors(given: list) -> list:
    """Return the inputs that are tensors, as JSON can hold them."""
    return [
        wire.pack(returned.plain(x)) if isinstance(x, torch.Tensor) else None
        for x in given
    ]


class Unpickler(pickle.Unpickler):
    """Finds classes of the exercises among the modules that were hidden."""

    def __init__(self, file: io.BytesIO, private: dict):
        super().__init__(file)
        self.private = private

    def find_class(self, module: str, name: str):
        """Return a class; the hidden modules are visible for that moment."""
        if not module.startswith("attnbook.exercises."):
            return super().find_class(module, name)
        now, finders = dict(sys.modules), list(sys.meta_path)
        try:
            sys.meta_path[:] = [
                x for x in finders if not isinstance(x, pristine.Empty)
            ]
            for key in filter(pristine.hidden, now):
                del sys.modules[key]
            sys.modules.update(self.private)
            return super().find_class(module, name)
        finally:
            sys.meta_path[:] = finders
            for key in filter(pristine.hidden, list(sys.modules)):
                self.private[key] = sys.modules.pop(key)
            sys.modules.update(now)
