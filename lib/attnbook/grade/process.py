"""What runs in a student's process: a notebook's cells, or its answers.

A notebook's cells run in one process. A call of a check sends the answer from
there by value: its code, and what it refers to in the notebook. Another process,
in which no cell runs, calls it and returns what it did as data; so nothing that a
cell patches or sets changes a verdict. After a wrong answer, it is a new one.
"""

import contextlib
import functools
import io
import linecache
import os
import re
import sys
import threading
import types
from multiprocessing.connection import Connection

import cloudpickle
import torch
from IPython.core.inputtransformer2 import TransformerManager
from IPython.utils.capture import capture_output

from attnbook.exercises.kernels import KERNELS, get_function
from attnbook.grade import sandbox
from attnbook.grade.notebook import PARTS, Cell, Exercise, list_exercises
from attnbook.grade.sandbox import Limits, Place

# A message of a student's process is a kind, one of these, then a zero byte.
DONE, CHECK = b"done", b"check"
STUCK, OTHER = b"stuck", b"other"  # no answer can be copied; it is no function
# The options of a magic such as %timeit, before the code that it runs.
OPTIONS = re.compile(r"(?:\s*-\S+(?:\s+\d+)?(?=\s|$))*\s*")


class TooLong(BaseException):
    """A cell ran longer than its limit; `except Exception` does not catch it."""


def write_data(data: object) -> bytes:
    """Return the data of an answer, which is plain values and tensors."""
    file = io.BytesIO()
    torch.save(data, file)
    return file.getvalue()


def read_data(raw: bytes) -> object:
    """Return the data of an answer; nothing in it can be code."""
    with torch.serialization.safe_globals(PARTS):
        return torch.load(io.BytesIO(raw), weights_only=True)


# The process of the cells.


class Carrier(cloudpickle.Pickler):
    """Pickles an answer by value, with all that it refers to in the notebook."""

    def reducer_override(self, x):
        """Return how an object, such as a cached function, is made again."""
        if isinstance(x, functools._lru_cache_wrapper):
            return functools.lru_cache(**x.cache_parameters()), (x.__wrapped__,)
        if isinstance(x, KERNELS):
            module, name = x.fn.__module__ or "", x.fn.__name__
            if module.startswith(("attnbook.", "triton.")):  # imported, as it is
                return getattr, (sys.modules[module], name)
            return get_function, (x.fn,)
        return super().reducer_override(x)


def register_source(number: int, source: str) -> str:
    """Let a cell's lines be found under a file name; return that name."""
    name = f"<cell {number}>"
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = len(source), None, lines, name
    return name


class Nothing:
    """Does nothing, whatever is asked of it; it is true."""

    def __getattr__(self, name: str) -> "Nothing":
        """Return itself for anything but Python's own names."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs) -> "Nothing":
        """Return itself."""
        return self

    def __repr__(self) -> str:
        return "… not checked yet"


class Shell(Nothing):
    """Runs cells; to them, it is IPython, as far as it runs code."""

    def __init__(self, end: Connection, limits: Limits):
        self.end, self.limits = end, limits
        self.names = {id(check): name for name, check in list_exercises().items()}
        self.transform = TransformerManager().transform_cell
        module = types.ModuleType("__main__")
        self.space = vars(module)
        self.space["display"] = lambda *things, **options: None
        self.space["get_ipython"] = lambda: self
        sys.modules["__main__"] = module
        self.modules, self.pid = dict(sys.modules), os.getpid()
        self.recursion, self.file = sys.getrecursionlimit(), "<cell>"

    def run_cell(self, cell: Cell) -> str:
        """Run a cell; return the error that it raises, if any."""
        shell = self
        # Again before each cell, which may have replaced it.
        Exercise.__call__ = lambda exercise, attempt=None, *more, **named: (
            shell.hand_over(exercise, attempt)
        )
        seconds, error = self.limits.cell, ""
        sandbox.limit_computing(seconds + self.limits.grace)
        try:
            with sandbox.limit_time(3 * seconds, TooLong, working=seconds):
                code = self.transform(cell.source)
                self.file = register_source(cell.number, code)
                exec(compile(code, self.file, "exec"), self.space)
        except TooLong:
            error = f"it was stopped after {seconds:.0f} seconds"
        except BaseException as raised:
            error = format_error(raised)
        if os.getpid() != self.pid:
            os._exit(0)
        sys.setrecursionlimit(self.recursion)
        for name, kept in self.modules.items():  # a cell may clear them
            sys.modules.setdefault(name, kept)
        return error

    def hand_over(self, exercise: Exercise, answer: object) -> Nothing:
        """Have an answer judged as it is now, if the main thread asks for it."""
        key = self.names.get(id(exercise), "")
        if not key or threading.current_thread() is not threading.main_thread():
            return Nothing()
        sys.setrecursionlimit(self.recursion)
        with sandbox.stop_clock():
            try:
                Carrier(file := io.BytesIO()).dump(answer)
                send(self.end, CHECK, key, file.getvalue())
            except Exception as error:
                send(self.end, STUCK, key, format_error(error))
            self.end.recv()
        return Nothing()

    # What IPython turns `%time f()`, `%%time`, `!ls` and `x = !ls` into.

    def run_line_magic(self, name: str, line: str, *more) -> object:
        """Run the code of `%time` and `%timeit`; leave out every other magic."""
        if name not in ("time", "timeit"):
            return None
        code = OPTIONS.sub("", line, count=1)
        try:
            return eval(compile(code, self.file, "eval"), self.space)
        except SyntaxError:
            return exec(compile(code, self.file, "exec"), self.space)

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        """Run the code of `%%time`, `%%timeit` and `%%capture`."""
        if name not in ("time", "timeit", "capture"):
            raise RuntimeError(f"%%{name} is not executed while grading")
        with contextlib.ExitStack() as entered:
            if name == "capture":
                caught = entered.enter_context(capture_output())
                self.space.update({word: caught for word in line.split()[:1]})
            exec(compile(self.transform(body), self.file, "exec"), self.space)

    def getoutput(self, *command) -> list:
        """Return no lines: commands of the system are left out."""
        return []


def format_error(raised: BaseException) -> str:
    """Return an error as `Type: the first line of its message`, kept short."""
    try:
        first = next(iter(str(raised).strip().splitlines()), "")
    except Exception:  # a student's own exception
        first = ""
    return f"{type(raised).__name__}: {first}"[:300].rstrip(": .")


def run_notebook(end: Connection, place: Place) -> None:
    """Run the cells that the judge sends, until it ends this process."""
    prepare(end, place)
    shell = Shell(end, place.limits)
    while True:
        send(end, DONE, shell.run_cell(end.recv()))


def run_answers(end: Connection, place: Place) -> None:
    """Send what each answer does that the judge sends, as data."""
    prepare(end, place)
    exercises = list_exercises()
    while True:
        key, raw, seeds = end.recv()
        sandbox.limit_computing(place.limits.answer)
        try:
            answer = cloudpickle.loads(raw)
        except Exception as error:
            send(end, STUCK, format_error(error))
            continue
        if callable(answer):
            send(end, DONE, write_data(exercises[key].run_attempt(answer, seeds)))
        else:
            send(end, OTHER, type(answer).__name__)


def prepare(end: Connection, place: Place) -> None:
    """Close all files but one, and limit this process."""
    sys.stdin = io.StringIO()
    sandbox.close_files(end.fileno())
    torch.set_num_threads(1)
    sandbox.apply_limits(place)


def send(end: Connection, *parts: bytes | str) -> None:
    """Send a message, whose parts are joined by a zero byte."""
    raw = (x if isinstance(x, bytes) else x.encode("utf8", "replace") for x in parts)
    end.send_bytes(b"\0".join(raw))
