"""One notebook's verdicts, reached outside the process that ran it."""

import hashlib
import time
from pathlib import Path

from attnbook.exercises.exercise import FIRST, Exercise
from attnbook.exercises.guard import ATTENTION
from attnbook.exercises.verdict import Verdict, make_finding
from attnbook.grade import source_check, submission
from attnbook.grade.process_limits import Limits
from attnbook.grade.sandbox import (
    GoneError,
    Sandbox,
    open_sandbox,
    scale_timeout,
)
from attnbook.grade.trials import make_trial, was_stopped

NOT_YET = Verdict("…", "not attempted yet")


def grade(path: Path, seed: int = 0, limits: Limits | None = None) -> dict:
    """Return a notebook's points, with the verdict of each exercise.

    Args:
        path: the notebook.
        seed: from it, the second inputs of every exercise are drawn.
        limits: of the process.
    """
    try:
        sources = submission.read(path)
        checks = submission.find_exercises([source for _, source in sources])
        if not checks:
            raise ValueError("it imports no check of this book")
    except ValueError as error:
        return {"error": str(error), "notes": [], "exercises": {}}
    cells = [submission.prepare_cell(n, x, {*checks}) for n, x in sources]
    grader = NotebookGrader(cells, checks, seed, limits or Limits())
    verdicts = grader.grade()
    found = {
        name: {
            "points": exercise.stars if verdicts[name] else 0,
            "of": exercise.stars,
            "verdict": repr(verdicts[name]),
            "mistake": verdicts[name].mistake,
        }
        for name, exercise in checks.items()
    }
    notes = [f"cell {n}: {grader.errors[n]}" for n in sorted(grader.errors)]
    return {"error": None, "notes": notes, "exercises": found}


class NotebookGrader:
    """Grades one notebook: its cells, errors and verdicts so far."""

    def __init__(
        self,
        cells: list[submission.Cell],
        checks: dict[str, Exercise],
        seed: int,
        limits: Limits,
    ):
        self.cells, self.checks, self.limits = cells, checks, limits
        self.seed = seed
        self.errors = {c.number: c.error for c in cells if c.error}
        self.fatal: set[int] = set()
        self.verdicts: dict[str, Verdict] = {}
        self.ends = time.monotonic() + scale_timeout(limits.whole)

    def grade(self) -> dict[str, Verdict]:
        """Return every verdict; each crash of the process costs one of them."""
        attempted = {name for cell in self.cells for name in cell.attempts}
        for name in self.checks.keys() - attempted:
            self.verdicts[name] = NOT_YET
        while self.pending_checks():
            if time.monotonic() > self.ends:
                late = make_finding("too-long", what=f"{self.limits.whole:.0f}")
                for name in self.pending_checks():
                    self.verdicts[name] = refuse(late.slug, late.sentence)
                break
            with open_sandbox(self.limits) as opened:
                if self.run_cells(opened):
                    self.try_all(opened)
        return self.verdicts

    def pending_checks(self) -> list[str]:
        """Return the checks without a verdict, in their order."""
        return [name for name in self.checks if name not in self.verdicts]

    def run_cells(self, opened: Sandbox) -> bool:
        """Run all cells except those that ended the process before."""
        patience = scale_timeout(3 * self.limits.cell + self.limits.grace)
        for cell in self.cells:
            if not cell.code or cell.number in self.fatal:
                continue
            left = self.ends - time.monotonic()
            if left < 0:
                return False
            try:
                reply = opened.request(
                    min(patience, left + 1),
                    *("cell", cell.number, cell.code),
                )
            except GoneError as gone:
                self.fatal.add(cell.number)
                self.errors[cell.number] = str(gone)
                return False
            if reply.get("error"):
                self.errors[cell.number] = str(reply["error"])[:300]
        return True

    def try_all(self, opened: Sandbox) -> None:
        """Try every attempt that has no verdict yet.

        Attempts that may use a ready-made attention come first: its kernels are
        blocked afterwards.
        """
        for name in sorted(self.pending_checks(), key=self.forbids_attention):
            try:
                self.verdicts[name] = self.judge_attempt(name, opened)
            except GoneError as gone:
                slug = "too-long" if "stopped" in str(gone) else "error"
                self.verdicts[name] = refuse(slug, f"{gone}")
                return

    def forbids_attention(self, name: str) -> bool:
        """Tell whether a check forbids a ready-made attention."""
        return bool(self.checks[name].forbidden & ATTENTION)

    def judge_attempt(self, name: str, opened: Sandbox) -> Verdict:
        """Run an attempt in the sandbox and judge its outcomes."""
        check = self.checks[name]
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        seeds = FIRST, int.from_bytes(digest[:3])
        drawn = [check.draw_cases(seed) for seed in seeds]
        plain = [
            [(c.tries, c.inputs, c.gradient, c.memory_limit) for c in x]
            for x in drawn
        ]
        reply = opened.request(
            scale_timeout(self.limits.answer),
            "attempt",
            name,
            plain,
            check.forbidden,
        )
        if reply.get("missing"):
            return self.missing_verdict(name)
        if "fault" in reply:
            return refuse("error", str(reply["fault"])[:300])
        if "kind" in reply:
            found = make_finding(
                "not-a-function", what=str(reply["kind"])[:100]
            )
            return refuse(found.slug, found.sentence)
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
                "its outcomes do not have the form that the grader expects",
            )
        return self.check_source(name, verdict) if verdict else verdict

    def missing_verdict(self, name: str) -> Verdict:
        """Return the verdict on a check that its cell did not reach."""
        for cell in reversed(self.cells):
            if name in cell.attempts and cell.number in self.errors:
                message = f"its cell fails: {self.errors[cell.number]}"
                return refuse("error", message)
        return NOT_YET

    def check_source(self, name: str, verdict: Verdict) -> Verdict:
        """Return the verdict, or a refusal if the source uses an attention."""
        codes = [cell.code for cell in self.cells]
        ask = [c.attempts[name] for c in self.cells if name in c.attempts][-1]
        used = source_check.find_ready_made(ask, codes, self.checks[name])
        if not used:
            return verdict
        found = make_finding("ready-made", what=f"`{used}`")
        return refuse(found.slug, found.sentence)


def refuse(slug: str, sentence: str) -> Verdict:
    """Return a refusal."""
    return Verdict("✗", f"because {sentence}", slug)
