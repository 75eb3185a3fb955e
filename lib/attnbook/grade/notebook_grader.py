"""One notebook's verdicts, reached outside the process that ran it."""

import hashlib
import importlib
import pickle
import pkgutil
import time
from collections.abc import Iterable
from pathlib import Path

import attnbook.exercises
from attnbook.exercises.exercise import FIRST, Exercise
from attnbook.exercises.verdict import Verdict, make_finding
from attnbook.grade import files, messages
from attnbook.grade.process_limits import Limits
from attnbook.grade.sandbox import (
    GoneError,
    Sandbox,
    open_sandbox,
    scale_timeout,
)
from attnbook.grade.submission import Cell
from attnbook.grade.trials import make_trial, was_stopped

NOT_YET = Verdict("…", "not attempted yet")
MOST_CALLS = 50  # calls of one check that are judged; the last of them counts
MOST_NOTES = 100


def find_exercises(chapters: Iterable[str]) -> dict[str, Exercise]:
    """Return all exercises of these chapters, as `chapter.check_x`."""
    packages = pkgutil.iter_modules(attnbook.exercises.__path__)
    known = {x.name for x in packages if x.ispkg}
    found: dict[str, Exercise] = {}
    for chapter in dict.fromkeys(x for x in chapters if x in known):
        module = importlib.import_module(f"attnbook.exercises.{chapter}")
        for name in getattr(module, "__all__", ()):
            if isinstance(exercise := getattr(module, name), Exercise):
                found[f"{chapter}.{name}"] = exercise
    return found


def grade(path: Path | bytes, seed: int = 0, limits: Limits | None = None) -> dict:
    """Return a notebook's points, with the verdict of each exercise.

    Args:
        path: the notebook, or what its file holds.
        seed: from it, the second inputs of every exercise are drawn.
        limits: of the process.
    """
    try:
        raw = path if isinstance(path, bytes) else files.read_bytes(path)
        grader = NotebookGrader(raw, seed, limits)
        verdicts = grader.grade()
        if not verdicts:
            raise ValueError("it imports no check of this book")
    except OSError as error:
        message = f"it cannot be read: {error.strerror}"
        return {"error": message, "notes": [], "exercises": {}}
    except ValueError as error:
        return {"error": str(error), "notes": [], "exercises": {}}
    found = {}
    for key, exercise in grader.checks.items():
        chapter, _, name = key.partition(".")
        # Two chapters may have a check of the same name.
        name = f"{name} ({chapter})" if name in found else name
        found[name] = {
            "points": exercise.stars if verdicts[key] else 0,
            "of": exercise.stars,
            "verdict": repr(verdicts[key]),
            "mistake": verdicts[key].mistake,
            "title": find_title(exercise, verdicts[key].mistake),
        }
    return {"error": None, "notes": grader.write_notes(), "exercises": found}


def find_title(exercise: Exercise, slug: str | None) -> str | None:
    """Return a mistake's name for a person, if the exercise declares it."""
    known = {mistake.slug: mistake.title for mistake in exercise.mistakes}
    return known.get(slug or "")


class NotebookGrader:
    """Grades one notebook: its cells, errors and verdicts so far.

    Args:
        raw: the notebook.
        seed: from it, the second inputs of every exercise are drawn.
        limits: of the process.
    """

    def __init__(self, raw: bytes, seed: int, limits: Limits | None):
        self.raw, self.seed, self.limits = raw, seed, limits or Limits()
        self.cells: list[Cell] = []
        self.checks: dict[str, Exercise] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.errors: dict[int, str] = {}
        self.ready: dict[tuple[int, str], str] = {}
        # Cells that ended the process, that ended in time, and calls of checks.
        self.fatal: set[int] = set()
        self.passed: set[int] = set()
        self.called: dict[tuple[int, str], int] = {}
        self.judged: set[tuple[int, str, int]] = set()
        self.ignored: dict[str, str] = {}
        self.slow_cells = self.slow_attempts = 0
        self.ends = time.monotonic() + scale_timeout(self.limits.whole)

    def grade(self) -> dict[str, Verdict]:
        """Return every verdict; each crash of the process costs one cell."""
        done = False
        while not done and time.monotonic() < self.ends:
            with open_sandbox(self.limits) as opened:
                if not self.cells:
                    self.read_notebook(opened)
                self.declare_checks(opened)
                done = self.run_cells(opened)
        for key in self.checks.keys() - self.verdicts.keys():
            self.verdicts[key] = self.explain_missing(key, not done)
        return self.verdicts

    def read_notebook(self, opened: Sandbox) -> None:
        """Have the notebook prepared, before any of its code runs.

        Raises:
            ValueError: if it is not a notebook, or takes too long.
        """
        most = scale_timeout(min(self.limits.cell, self.limits.whole))
        try:
            reply = opened.request(most, "read", self.raw)
        except GoneError as gone:
            raise ValueError(f"it cannot be prepared: {gone}") from gone
        if error := reply.get("error") or reply.get("fault"):
            raise ValueError(str(error)[:300])
        self.cells = [Cell(**given) for given in reply["cells"]]
        self.errors = {c.number: c.error for c in self.cells if c.error}
        self.checks = find_exercises(x for c in self.cells for x in c.chapters)

    def declare_checks(self, opened: Sandbox) -> None:
        """Tell the process which checks there are; keep what the source says.

        Raises:
            ValueError: if this takes too long.
        """
        about = {
            key: (x.forbidden, x.solution.__name__) for key, x in self.checks.items()
        }
        try:
            most = scale_timeout(min(self.limits.cell, self.limits.whole))
            reply = opened.request(most, "checks", about)
        except GoneError as gone:
            raise ValueError(f"it cannot be prepared: {gone}") from gone
        for number, named in reply.get("ready", ()):
            for key, used in named.items():
                if used:
                    self.ready[number, key] = used

    def run_cells(self, opened: Sandbox) -> bool:
        """Run all cells except those that ended the process before."""
        self.called.clear()
        for cell in self.cells:
            if not cell.code or cell.number in self.fatal:
                continue
            if time.monotonic() > self.ends:
                return False
            try:
                reply = self.run_cell(cell, opened)
            except GoneError as gone:
                reply = {"error": str(gone), "fatal": True}
            error = str(reply.get("error") or reply.get("fault") or "")[:300]
            if error:
                self.errors[cell.number] = error
            else:
                self.passed.add(cell.number)
            if error == "too-long" or "stopped" in error:
                self.slow_cells += 1
            if reply.get("fatal") or reply.get("fault"):
                self.fatal.add(cell.number)
                return False
        return True

    def run_cell(self, cell: Cell, opened: Sandbox) -> dict:
        """Run a cell, judging each attempt that it hands over.

        After each cell that takes too long, later ones have half the time,
        except those that ended before: all of them together take at most twice
        the time of one.

        Raises:
            GoneError: if the process ends or does not reply in time.
        """
        seconds = self.limits.cell
        if cell.number not in self.passed:
            seconds /= 2**self.slow_cells
        patience = scale_timeout(3 * seconds + self.limits.grace)
        ends = time.monotonic() + patience
        request = "cell", cell.number, cell.code, seconds
        mark = opened.send(patience, pickle.dumps(request))
        while True:
            left = min(ends, self.ends + 1) - time.monotonic()
            opened.watch(left, seconds + self.limits.grace)
            reply = opened.receive(left, mark)
            if "check" not in reply:
                return reply
            before = time.monotonic()
            self.answer_check(str(reply["check"])[:100], cell.number, opened)
            ends += time.monotonic() - before

    def answer_check(self, key: str, number: int, opened: Sandbox) -> None:
        """Judge the attempt that a cell hands to a check, if it counts.

        Raises:
            GoneError: if the process ends or does not reply in time.
        """
        if key not in self.checks:
            self.checks.update(find_exercises([key.partition(".")[0]]))
        known = key in self.checks
        before = sum(n for (_, x), n in self.called.items() if x == key)
        nth = self.called.get((number, key), 0) + 1
        if known:
            self.called[number, key] = nth
        if known and before >= MOST_CALLS:
            self.ignored[key] = (
                f"{key} is called more than {MOST_CALLS} times: of these calls "
                f"the first {MOST_CALLS} are graded"
            )
        done = before >= MOST_CALLS or (number, key, nth) in self.judged
        if done or not known:
            opened.send(1.0, b"")
            return
        self.judged.add((number, key, nth))
        verdict = self.judge_attempt(key, number, opened)
        # A stub that is checked after an answer takes nothing back.
        if verdict.mark != NOT_YET.mark or key not in self.verdicts:
            self.verdicts[key] = verdict

    def judge_attempt(self, key: str, number: int, opened: Sandbox) -> Verdict:
        """Run an attempt in the sandbox and judge its outcomes.

        Raises:
            GoneError: if the process ends or does not reply in time.
        """
        check = self.checks[key]
        name = key.partition(".")[2]
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        seeds = FIRST, int.from_bytes(digest[:3])
        drawn = [check.draw_cases(seed) for seed in seeds]
        plain = [
            [
                (
                    c.tries,
                    c.inputs,
                    c.gradient,
                    c.memory_limit,
                    c.count_arrays,
                    c.probe,
                )
                for c in x
            ]
            for x in drawn
        ]
        most = scale_timeout(self.limits.answer / 2**self.slow_attempts)
        raw = messages.SECONDS.pack(most) + pickle.dumps((plain, check.forbidden))
        patience = most + scale_timeout(self.limits.grace)
        try:
            reply = opened.receive(patience, opened.send(patience, raw))
        except GoneError as gone:
            self.verdicts[key] = refuse("error", str(gone))
            raise
        if "gone" in reply:
            late = bool(reply.get("late"))
            self.slow_attempts += late
            message = str(reply["gone"])[:300]
            return refuse("too-long" if late else "error", message)
        if "fault" in reply:
            return refuse("error", str(reply["fault"])[:300])
        if "kind" in reply:
            found = make_finding("not-a-function", what=str(reply["kind"])[:100])
            return refuse(found.slug, found.seen)
        try:
            trials = tuple(
                make_trial(seed, cases, given)
                for seed, cases, given in zip(
                    seeds, drawn, reply["trials"], strict=False
                )
            )
            if len(trials) < len(seeds) and not was_stopped(trials[-1]):
                raise ValueError("a draw is missing")
            verdict = check.judge(trials)
        except Exception:  # whatever a forged answer may lead to
            return refuse(
                "tampered",
                "Its outcomes do not have the form that the grader expects",
            )
        used = self.ready.get((number, key))
        if not (verdict and used):
            return verdict
        found = make_finding("ready-made", what=f"`{used}`")
        return refuse(found.slug, found.seen)

    def explain_missing(self, key: str, late: bool) -> Verdict:
        """Return the verdict on a check that handed no attempt over."""
        name = key.partition(".")[2]
        naming = [c for c in self.cells if key in c.names or name in c.names]
        for cell in reversed(naming):
            if cell.number in self.errors:
                error = self.errors[cell.number]
                return refuse("error", f"Its cell fails: {error}")
        if naming and late:
            found = make_finding("never-ran", what=f"{self.limits.whole:.0f}")
            return refuse(found.slug, found.seen)
        if naming:
            number = naming[-1].number
            message = f"not graded: cell {number} names it, but no call ran"
            return Verdict("…", message)
        return NOT_YET

    def write_notes(self) -> list[str]:
        """Return what a teacher should know beside the verdicts."""
        notes = [f"cell {n}: {self.errors[n]}" for n in sorted(self.errors)]
        notes += [self.ignored[key] for key in sorted(self.ignored)]
        more = len(notes) - MOST_NOTES
        return notes[:MOST_NOTES] + [f"{more} more notes"] * (more > 0)


def refuse(slug: str, sentence: str) -> Verdict:
    """Return a refusal."""
    return Verdict("✗", sentence, slug)
