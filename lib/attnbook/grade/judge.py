"""One notebook's verdicts, reached in a process in which no student's code runs."""

import hashlib
import re
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Pipe

from attnbook.grade import notebook, process, sandbox
from attnbook.grade.notebook import FIRST, Cell, Verdict
from attnbook.grade.process import CHECK, DONE, OTHER, STUCK
from attnbook.grade.sandbox import Limits, Place

LARGEST = 256 * 2**20  # bytes of one message of a student's process
MOST_CALLS = 50  # calls of one check that are judged; the last of them counts
MOST_NOTES = 100
FORGED = "Its outcomes do not have the form that the grader expects"
FUNCTION = "The check got an object of type {}; it needs the function itself"
SAID = {  # of an answer that gives no data
    STUCK: ("error", "It cannot be copied to a process of its own: {}"),
    OTHER: ("not-a-function", FUNCTION),
}


class GoneError(Exception):
    """A student's process did not answer in time, ended, or sent no message."""


class Student:
    """A student's process and the connection to it."""

    def __init__(self, run: Callable, place: Place, seconds: float, *others: int):
        self.seconds, self.others = seconds, others
        self.end, theirs = Pipe()
        self.pid = sandbox.start_process(lambda: run(theirs, place))
        theirs.close()

    def exchange(self, patience: float, request: object) -> tuple[bytes, bytes]:
        """Send a request; return the kind and the content of the next message."""
        try:
            with sandbox.limit_time(patience, TimeoutError):
                self.end.send(request)
                kind, _, content = self.end.recv_bytes(LARGEST).partition(b"\0")
            return kind, content
        except (EOFError, OSError) as error:
            late = self.close() == signal.SIGXCPU or isinstance(error, TimeoutError)
            said = f"it was stopped after {self.seconds:.0f} seconds"
            raise GoneError(said if late else "it ended its own process") from error

    def close(self) -> int:
        """End the process; return the signal that had ended it, or 0."""
        pid, self.pid = self.pid, 0
        self.end.close()
        return sandbox.end_process(pid, *self.others) if pid else 0


class Judge:
    """Grades one notebook: runs its cells, and judges the answers they hand over."""

    def __init__(
        self,
        raw: bytes,
        chosen: Sequence[str] | None,
        seed: int,
        limits: Limits,
        folder: str,
    ):
        self.cells, self.chosen = notebook.read_cells(raw), chosen
        self.seed, self.limits = seed, limits
        self.exercises = notebook.find_exercises(self.cells, chosen)
        for cell in self.cells:
            process.register_source(cell.number, cell.source)
        self.answers: Student | None = None  # runs the answers
        self.verdicts: dict[str, Verdict] = {}
        self.errors: dict[int, str] = {}
        self.fatal: set[int] = set()  # cells that ended their process
        self.judged: set[tuple[int, str, int]] = set()
        self.called: dict[str, int] = {}
        self.load = sandbox.measure_load()
        self.ends = time.monotonic() + limits.whole * self.load
        sandbox.limit_memory(2 * limits.memory)  # what a forged answer may take here
        self.first = sandbox.enter_namespaces()
        self.place = Place(folder, limits, bool(self.first))

    def grade(self) -> dict:
        """Return the result; each end of the process costs one cell."""
        done = False
        while not done and time.monotonic() < self.ends:
            done = self.run_cells()
        if self.first:
            sandbox.end_process(self.first)
        if not self.exercises:
            raise ValueError("it imports no check of this book")
        found: dict[str, dict] = {}
        for key, exercise in self.exercises.items():
            if key not in self.verdicts:
                self.verdicts[key] = self.explain_missing(key, not done)
            verdict = self.verdicts[key]
            chapter, _, name = key.partition(".")
            # Two chapters may have a check of the same name.
            name = f"{name} ({chapter})" if name in found else name
            points = exercise.stars if verdict else 0
            found[name] = {
                "points": points if exercise.runs_here else None,
                "of": exercise.stars if exercise.runs_here else 0,
                "verdict": repr(verdict),
                "mistake": verdict.mistake,
            }
        return {"error": None, "notes": self.write_notes(), "exercises": found}

    def write_notes(self) -> list[str]:
        """Return what a teacher should know beside the verdicts."""
        notes = [f"cell {n}: {self.errors[n]}" for n in sorted(self.errors)]
        often = sorted(key for key, count in self.called.items() if count > MOST_CALLS)
        said = "{0} is called more than {1} times: of these calls the first {1} count"
        notes += [said.format(key, MOST_CALLS) for key in often]
        more = len(notes) - MOST_NOTES
        return notes[:MOST_NOTES] + [f"{more} more notes"] * (more > 0)

    def run_cells(self) -> bool:
        """Run all cells in a new process, except those that ended one before."""
        self.called.clear()
        given = process.run_notebook, self.place, self.limits.cell, self.first
        student, number = Student(*given), 0
        try:
            for cell in self.cells:
                number = cell.number
                if time.monotonic() > self.ends:
                    return False
                if number not in self.fatal:
                    self.errors.pop(number, None)
                    if error := self.run_cell(cell, student):
                        self.errors[number] = error
            return True
        except GoneError as gone:
            self.errors[number] = str(gone)
            self.fatal.add(number)
            return False
        finally:
            if self.answers:
                self.answers.close()
            student.close()

    def run_cell(self, cell: Cell, student: Student) -> str:
        """Run a cell, judging each answer that it hands over; return its error."""
        patience = (3 * self.limits.cell + self.limits.grace) * self.load
        ends, request = time.monotonic() + patience, cell
        while True:
            left = min(ends, self.ends + 1) - time.monotonic()
            kind, content = student.exchange(left, request)
            if kind == DONE:
                return content.decode("utf8", "replace")[:300]
            if kind not in (CHECK, STUCK):
                raise GoneError("it wrote to the grader's socket")
            before = time.monotonic()
            name, _, raw = content.partition(b"\0")
            key = name.decode("utf8", "replace")
            if self.counts(cell.number, key):
                verdict = self.judge_answer(key, kind, raw, student.pid)
                # A stub that is checked after an answer takes nothing back.
                if verdict.mark != "…" or key not in self.verdicts:
                    self.verdicts[key] = verdict
            ends, request = ends + time.monotonic() - before, None

    def counts(self, number: int, key: str) -> bool:
        """Tell whether an answer that a cell hands over is to be judged."""
        if key not in self.exercises and self.chosen is None:
            chapter = key.partition(".")[0]
            self.exercises.update(notebook.list_exercises([chapter]))
        if key not in self.exercises:
            return False
        nth = self.called[key] = self.called.get(key, 0) + 1
        # It was judged if its process has been ended since, and runs again.
        fresh = (number, key, nth) not in self.judged
        self.judged.add((number, key, nth))
        return fresh and nth <= MOST_CALLS

    def judge_answer(self, key: str, kind: bytes, raw: bytes, other: int) -> Verdict:
        """Run an answer outside the process of the cells; return the verdict on it."""
        seconds = self.limits.answer
        if not (self.answers and self.answers.pid):
            given = process.run_answers, self.place, seconds, self.first, other
            self.answers = Student(*given)
        if kind == CHECK:
            digest = hashlib.sha256(f"{self.seed} {key.partition('.')[2]}".encode())
            request = key, raw, (FIRST, int.from_bytes(digest.digest()[:3]))
            try:
                patience = (3 * seconds + self.limits.grace) * self.load
                kind, raw = self.answers.exchange(patience, request)
            except GoneError as gone:
                slug = "too-long" if "stopped" in str(gone) else "error"
                return Verdict("✗", str(gone), slug)
        if kind in SAID:
            slug, said = SAID[kind]
            return Verdict("✗", said.format(raw[:300].decode("utf8", "replace")), slug)
        try:
            verdict = self.exercises[key].judge(process.read_data(raw))
        except Exception:  # whatever a forged answer may lead to
            verdict = Verdict("✗", FORGED, "tampered")
        if verdict.mark == "✗":  # the next answer gets a new process
            self.answers.close()
        return verdict

    def explain_missing(self, key: str, late: bool) -> Verdict:
        """Return the verdict on a check that handed no answer over."""
        name = re.compile(rf"\b{key.partition('.')[2]}\b")
        naming = [c.number for c in self.cells if name.search(c.source)]
        if not naming:
            return Verdict("…", "not attempted yet")
        if failed := [self.errors[n] for n in naming if n in self.errors]:
            return Verdict("✗", f"Its cell fails: {failed[-1]}", "error")
        if late:
            whole = f"the time for the whole notebook, {self.limits.whole:.0f} seconds"
            return Verdict("✗", f"It was not run: {whole}, was over", "never-ran")
        return Verdict("…", f"not graded: cell {naming[-1]} names it, but no call ran")
