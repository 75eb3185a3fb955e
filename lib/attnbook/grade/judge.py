"""One notebook's verdicts, reached in a process in which no student's code runs."""

import hashlib
import signal
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe

from attnbook.exercises.exercise import FIRST
from attnbook.exercises.verdict import Verdict
from attnbook.grade import notebook, process, sandbox
from attnbook.grade.notebook import Cell
from attnbook.grade.sandbox import Limits

LARGEST = 32 * 2**20  # bytes of one message of a student's process
MOST_CALLS = 50  # calls of one check that are judged; the last of them counts
MOST_NOTES = 100
PATIENCE = 60.0  # seconds in which a new process must report
STUCK = "It cannot be copied to a process of its own"


class GoneError(Exception):
    """A student's process did not answer in time, ended, or sent no message."""


def grade(
    raw: bytes,
    exercises: Sequence[str] | None,
    seed: int,
    limits: Limits,
    folder: str,
) -> tuple[dict, str]:
    """Return the result of a notebook, and what this platform cannot do.

    Raises:
        LookupError: if there is no exercise of a name.
        ValueError: if it is no notebook, or imports no check.
    """
    judge = Judge(notebook.read_cells(raw), exercises, seed, limits, folder)
    try:
        return judge.grade(), judge.lacking
    finally:
        judge.close()


class Judge:
    """Grades one notebook: runs its cells, and judges the answers they hand over.

    Args:
        cells: the notebook's cells.
        chosen: the names of the exercises to grade; None for all.
        seed: from it, the second inputs of every exercise are drawn.
        limits: of a student's process.
        folder: where it may write.
    """

    def __init__(
        self,
        cells: list[Cell],
        chosen: Sequence[str] | None,
        seed: int,
        limits: Limits,
        folder: str,
    ):
        self.cells, self.seed, self.limits = cells, seed, limits
        self.folder, self.chosen = folder, chosen
        known = notebook.find_exercises(notebook.list_chapters())
        self.names = {id(exercise): name for name, exercise in known.items()}
        if chosen is None:
            chapters = [x for c in cells for x in notebook.find_chapters(c.source)]
            self.exercises = notebook.find_exercises(chapters)
        else:
            self.exercises = notebook.choose_exercises(chosen)
        self.verdicts: dict[str, Verdict] = {}
        self.errors: dict[int, str] = {}
        self.fatal: set[int] = set()  # cells that ended their process
        self.judged: set[tuple[int, str, int]] = set()
        self.called: dict[str, int] = {}
        self.ignored: dict[str, str] = {}
        self.lacking, self.notebook = "", 0
        self.load = sandbox.measure_load()
        self.first = sandbox.enter_namespaces()
        self.ends = time.monotonic() + limits.whole * self.load

    def close(self) -> None:
        """End every process of the notebook."""
        if self.first:
            sandbox.end_process(self.first, 0, set())

    def grade(self) -> dict:
        """Return the result; each end of the process costs one cell.

        Raises:
            ValueError: if the notebook imports no check.
        """
        done = False
        while not done and time.monotonic() < self.ends:
            done = self.run_cells()
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
            slug = verdict.mistake
            found[name] = {
                "points": exercise.stars if verdict else 0,
                "of": exercise.stars,
                "verdict": repr(verdict),
                "mistake": slug,
                "title": slug and slug.replace("-", " "),
            }
        return {"error": None, "notes": self.write_notes(), "exercises": found}

    def run_cells(self) -> bool:
        """Run all cells in a new process, except those that ended one before."""
        self.called.clear()
        ours, theirs = Pipe()
        run = process.run_notebook
        given = theirs, self.names, self.folder, self.limits, bool(self.first)
        self.notebook = pid = sandbox.start_process(partial(run, *given))
        theirs.close()
        cell, ended = None, 0
        try:
            _, lacking = self.receive(ours, PATIENCE)
            self.lacking = lacking.decode()
            for cell in self.cells:
                if cell.number not in self.fatal:
                    if time.monotonic() > self.ends:
                        return False
                    self.errors.pop(cell.number, None)
                    if error := self.run_cell(cell, ours):
                        self.errors[cell.number] = error
            return True
        except GoneError as gone:
            fault = str(gone)
        finally:
            ours.close()
            ended = sandbox.end_process(pid, self.first, set())
        if cell is None:
            raise RuntimeError(f"no process for the notebook: {fault}")
        if ended == signal.SIGXCPU:
            fault = f"it was stopped after {self.limits.cell:.0f} seconds"
        self.errors[cell.number] = fault
        self.fatal.add(cell.number)
        return False

    def receive(self, end: Connection, seconds: float) -> tuple[bytes, bytes]:
        """Return the kind and the content of the next message.

        Raises:
            GoneError: if none arrives.
        """
        try:
            with sandbox.limit_time(seconds, TimeoutError):
                kind, _, content = end.recv_bytes(LARGEST).partition(b"\0")
            return kind, content
        except TimeoutError as error:
            message = f"it was stopped after {max(seconds, 0):.0f} seconds"
            raise GoneError(message) from error
        except (EOFError, OSError) as error:
            raise GoneError("it ended its own process") from error

    def run_cell(self, cell: Cell, end: Connection) -> str:
        """Run a cell, judging each answer that it hands over; return its error.

        Raises:
            GoneError: if the process ends or does not reply in time.
        """
        patience = (3 * self.limits.cell + self.limits.grace) * self.load
        ends = time.monotonic() + patience
        try:
            with sandbox.limit_time(patience, TimeoutError):
                end.send(cell)
        except OSError as error:
            raise GoneError("it ended its own process") from error
        while True:
            left = min(ends, self.ends + 1) - time.monotonic()
            kind, content = self.receive(end, left)
            if kind == process.DONE:
                return content.decode("utf8", "replace")[:300]
            if kind not in (process.CHECK, process.STUCK):
                raise GoneError("it wrote to the grader's socket")
            before = time.monotonic()
            name, _, raw = content.partition(b"\0")
            self.take_answer(cell.number, name.decode("utf8", "replace"), kind, raw)
            with sandbox.limit_time(patience, TimeoutError):
                end.send_bytes(b"")
            ends += time.monotonic() - before

    def take_answer(self, number: int, key: str, kind: bytes, raw: bytes) -> None:
        """Judge an answer that a cell hands over, if it counts."""
        if key not in self.exercises and self.chosen is None:
            self.exercises.update(notebook.find_exercises([key.partition(".")[0]]))
        if key not in self.exercises:
            return
        nth = self.called[key] = self.called.get(key, 0) + 1
        if nth > MOST_CALLS:
            self.ignored[key] = (
                f"{key} is called more than {MOST_CALLS} times: of these calls "
                f"the first {MOST_CALLS} are graded"
            )
            return
        if (number, key, nth) in self.judged:  # before its process was ended
            return
        self.judged.add((number, key, nth))
        if kind == process.STUCK:
            error = raw.decode("utf8", "replace")[:300]
            verdict = refuse("error", f"{STUCK}: {error}")
        else:
            verdict = self.judge_answer(key, raw)
        # A stub that is checked after an answer takes nothing back.
        if verdict.mark != "…" or key not in self.verdicts:
            self.verdicts[key] = verdict

    def judge_answer(self, key: str, raw: bytes) -> Verdict:
        """Run an answer in a process of its own and return the verdict on it."""
        exercise, limits = self.exercises[key], self.limits
        digest = hashlib.sha256(f"{self.seed} {key.partition('.')[2]}".encode())
        seeds = FIRST, int.from_bytes(digest.digest()[:3])
        ours, theirs = Pipe(duplex=False)
        for cell in self.cells:
            process.register_source(cell.number, cell.source)
        given = theirs, exercise, raw, seeds, self.folder, limits, bool(self.first)
        pid = sandbox.start_process(partial(process.run_answer, *given))
        theirs.close()
        kind, fault, ended = b"", "", 0
        try:
            patience = (3 * limits.answer + limits.grace) * self.load
            kind, content = self.receive(ours, patience)
        except GoneError as gone:
            fault = str(gone)
        finally:
            ours.close()
            ended = sandbox.end_process(pid, self.first, {self.notebook})
        if fault:
            late = ended == signal.SIGXCPU or "stopped" in fault
            if late:
                fault = f"it was stopped after {limits.answer:.0f} seconds"
            return refuse("too-long" if late else "error", fault)
        if kind == process.STUCK:
            error = content.decode("utf8", "replace")[:300]
            return refuse("error", f"{STUCK}: {error}")
        if kind == process.OTHER:
            what = content.decode("utf8", "replace")[:300]
            return refuse(
                "not-a-function",
                f"The check got an object of type {what}; it needs the function itself",
            )
        try:
            if kind != process.DONE:
                raise ValueError("no data")
            return exercise.judge(process.read_data(content))
        except Exception:  # whatever a forged answer may lead to
            return refuse(
                "tampered",
                "Its outcomes do not have the form that the grader expects",
            )

    def explain_missing(self, key: str, late: bool) -> Verdict:
        """Return the verdict on a check that handed no answer over."""
        name = key.partition(".")[2]
        naming = [c.number for c in self.cells if notebook.names_check(c, name)]
        for number in reversed(naming):
            if number in self.errors:
                return refuse("error", f"Its cell fails: {self.errors[number]}")
        if naming and late:
            seconds = f"{self.limits.whole:.0f} seconds"
            return refuse(
                "never-ran",
                f"It was not run: the time for the whole notebook, {seconds}, had "
                "run out before",
            )
        if naming:
            message = f"not graded: cell {naming[-1]} names it, but no call ran"
            return Verdict("…", message)
        return Verdict("…", "not attempted yet")

    def write_notes(self) -> list[str]:
        """Return what a teacher should know beside the verdicts."""
        notes = [f"cell {n}: {self.errors[n]}" for n in sorted(self.errors)]
        notes += [self.ignored[key] for key in sorted(self.ignored)]
        more = len(notes) - MOST_NOTES
        return notes[:MOST_NOTES] + [f"{more} more notes"] * (more > 0)


def refuse(slug: str, sentence: str) -> Verdict:
    """Return a refusal."""
    return Verdict("✗", sentence, slug)
