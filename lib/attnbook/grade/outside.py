"""One notebook's verdicts, reached outside the process that ran it.

Chapter: all of them
Source: none
Axes: none
"""

import hashlib
import time
from pathlib import Path

from attnbook.exercises.exercise import FIRST, Exercise
from attnbook.exercises.guard import ATTENTION
from attnbook.exercises.verdict import Verdict, common
from attnbook.grade import submission, suspicion
from attnbook.grade.fences import Limits
from attnbook.grade.heard import stopped, trial
from attnbook.grade.room import GoneError, Room, room, unhurried

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
        checks = submission.exercises([source for _, source in sources])
        if not checks:
            raise ValueError("it imports no check of this book")
    except ValueError as error:
        return {"error": str(error), "notes": [], "exercises": {}}
    cells = [submission.prepared(n, x, {*checks}) for n, x in sources]
    desk = Desk(cells, checks, seed, limits or Limits())
    verdicts = desk.grade()
    found = {
        name: {
            "points": exercise.stars if verdicts[name] else 0,
            "of": exercise.stars,
            "verdict": repr(verdicts[name]),
            "mistake": verdicts[name].mistake,
        }
        for name, exercise in checks.items()
    }
    notes = [f"cell {n}: {desk.errors[n]}" for n in sorted(desk.errors)]
    return {"error": None, "notes": notes, "exercises": found}


class Desk:
    """A notebook on the grader's desk: what is known of it so far."""

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
        self.ends = time.monotonic() + unhurried(limits.whole)

    def grade(self) -> dict[str, Verdict]:
        """Return every verdict; what ends the process costs one of them."""
        asked = {name for cell in self.cells for name in cell.asks}
        for name in self.checks.keys() - asked:
            self.verdicts[name] = NOT_YET
        while self.todo():
            if time.monotonic() > self.ends:
                late = common("too-long", what=f"{self.limits.whole:.0f}")
                for name in self.todo():
                    self.verdicts[name] = refused(late.slug, late.sentence)
                break
            with room(self.limits) as opened:
                if self.run_cells(opened):
                    self.try_all(opened)
        return self.verdicts

    def todo(self) -> list[str]:
        """Return the checks without a verdict, in their order."""
        return [name for name in self.checks if name not in self.verdicts]

    def run_cells(self, opened: Room) -> bool:
        """Run all cells but those that ended the process before."""
        patience = unhurried(3 * self.limits.cell + self.limits.grace)
        for cell in self.cells:
            if not cell.code or cell.number in self.fatal:
                continue
            left = self.ends - time.monotonic()
            if left < 0:
                return False
            try:
                told = opened.ask(
                    min(patience, left + 1),
                    *("cell", cell.number, cell.code),
                )
            except GoneError as gone:
                self.fatal.add(cell.number)
                self.errors[cell.number] = str(gone)
                return False
            if told.get("error"):
                self.errors[cell.number] = str(told["error"])[:300]
        return True

    def try_all(self, opened: Room) -> None:
        """Try every attempt that has no verdict yet.

        Those that may use a ready-made attention come first: later it is
        barred.
        """
        for name in sorted(self.todo(), key=self.bars):
            try:
                self.verdicts[name] = self.verdict(name, opened)
            except GoneError as gone:
                slug = "too-long" if "stopped" in str(gone) else "error"
                self.verdicts[name] = refused(slug, f"{gone}")
                return

    def bars(self, name: str) -> bool:
        """Tell whether a check forbids a ready-made attention."""
        return bool(self.checks[name].forbidden & ATTENTION)

    def verdict(self, name: str, opened: Room) -> Verdict:
        """Have an attempt tried in the room, and judge what it gave."""
        check = self.checks[name]
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        seeds = FIRST, int.from_bytes(digest[:3])
        drawn = [check.cases(seed) for seed in seeds]
        plain = [
            [(c.tries, c.inputs, c.gradient, c.room) for c in x] for x in drawn
        ]
        told = opened.ask(
            unhurried(self.limits.answer),
            "attempt",
            name,
            plain,
            check.forbidden,
        )
        if told.get("missing"):
            return self.missing(name)
        if "fault" in told:
            return refused("error", str(told["fault"])[:300])
        if "kind" in told:
            found = common("not-a-function", what=str(told["kind"])[:100])
            return refused(found.slug, found.sentence)
        try:
            trials = tuple(
                trial(seed, cases, given)
                for seed, cases, given in zip(
                    seeds, drawn, told["trials"], strict=False
                )
            )
            if len(trials) < len(seeds) and not stopped(trials[-1]):
                raise ValueError("a draw is missing")
            verdict = check.judge(trials)
        except Exception:  # whatever a forged answer may lead to
            return refused("tampered", "it answered in a form of its own")
        return self.suspected(name, verdict) if verdict else verdict

    def missing(self, name: str) -> Verdict:
        """Return the verdict on a check whose cell did not come to it."""
        for cell in reversed(self.cells):
            if name in cell.asks and cell.number in self.errors:
                said = f"its cell fails: {self.errors[cell.number]}"
                return refused("error", said)
        return NOT_YET

    def suspected(self, name: str, verdict: Verdict) -> Verdict:
        """Return the verdict after a look at the source."""
        codes = [cell.code for cell in self.cells]
        ask = [c.asks[name] for c in self.cells if name in c.asks][-1]
        used = suspicion.ready_made(ask, codes, self.checks[name])
        if not used:
            return verdict
        found = common("ready-made", what=f"`{used}`")
        return refused(found.slug, found.sentence)


def refused(slug: str, sentence: str) -> Verdict:
    """Return a refusal."""
    return Verdict("✗", f"because {sentence}", slug)
