"""How an exercise is declared and graded.

Only `runner.run` calls the learner's function, on cases, and returns outcomes
as data; it can therefore run in another process. The verdict is reached from
data alone, where the learner's code cannot change it.
"""

import inspect
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.cached_outcomes import (
    draw_cases,
    draw_outcomes,
    list_outcomes,
)
from attnbook.exercises.guard import ATTENTION, preserve_state, write_full_name
from attnbook.exercises.limits import SHOWN
from attnbook.exercises.mistake import Mistake, Trial
from attnbook.exercises.outcome import Case, Draws, Outcome, is_same_outcome
from attnbook.exercises.runner import run, run_rounds
from attnbook.exercises.verdict import (
    LIMITS,
    Finding,
    Verdict,
    find_difference,
    make_finding,
)

__all__ = ["Case", "Exercise", "Mistake", "Outcome", "Verdict", "run"]

FIRST = 2014  # seed of the inputs tried first, the same for everyone

NOT_YET = Verdict("…", "not attempted yet")
RIGHT = Verdict("✓", "right")


@dataclass(frozen=True)
class Exercise:
    """A question that checks its answers.

    Attributes:
        title: the topic, in a few words.
        stars: 1 (a few lines) to 3 (think first).
        minutes: how long it takes most people.
        section: the heading to reread after a wrong answer.
        solution: the right answer; its parameters name the inputs.
        returns: the names of what it returns.
        draw: the cases, simplest first, from a private generator.
        mistakes: the wrong answers known by name.
        allowed: which calls may be used, in words.
        forbidden: names of the torch functions that may not.
        compare_by: returns the part of an outcome that is compared, where
            right answers may differ in the rest, such as a constant that a
            softmax removes.
        other_solutions: other right formulas, whose larger rounding errors are
            allowed as well.
        helpers: functions that the solution calls and that a chapter shows
            with it.
    """

    title: str
    stars: int
    minutes: int
    section: str
    solution: Callable
    returns: tuple[str, ...]
    draw: Callable[[torch.Generator], tuple[Case, ...]]
    mistakes: tuple[Mistake, ...] = ()
    allowed: str = "Everything is allowed but a ready-made attention."
    forbidden: frozenset[str] = ATTENTION
    compare_by: Callable[[Outcome], Outcome] = lambda outcome: outcome
    other_solutions: tuple[Callable, ...] = ()
    helpers: tuple[Callable, ...] = ()

    def __repr__(self) -> str:
        return f"{'★' * self.stars} {self.minutes} minutes: {self.title}"

    def __call__(
        self, attempt: object, fresh: int | None = None, own: bool = True
    ) -> Verdict:
        """Check an answer on the first inputs, then on fresh ones.

        Args:
            attempt: the learner's function.
            fresh: seed of the second inputs; random unless given.
            own: whether the answer must be code of one's own; if not, the
                library's own function is accepted, too.
        """
        if not callable(attempt):
            kind = f"an object of type {type(attempt).__name__}"
            return make_refusal(make_finding("not-a-function", what=kind))
        fresh = secrets.randbits(31) if fresh is None else fresh
        with preserve_state():
            return self.judge(self.run_attempt(attempt, (FIRST, fresh)), own)

    def draw_cases(self, seed: int) -> tuple[Case, ...]:
        """Return the cases drawn from a seed."""
        return draw_cases(self.draw, seed)

    def run_attempt(
        self, attempt: Callable, seeds: tuple[int, ...]
    ) -> tuple[Trial, ...]:
        """Run an attempt on the cases of each seed, until it is stopped."""
        trials: list[Trial] = []
        for seed in seeds:
            shown = 0 if trials else SHOWN
            cases = self.draw_cases(seed)
            found = run_rounds(attempt, cases, self.forbidden, shown)
            trials.append(Trial(seed, found))
            if any(outcome.stopped for r in found for outcome in r):
                break
        return tuple(trials)

    def judge(self, trials: tuple[Trial, ...], own: bool = True) -> Verdict:
        """Reach a verdict from what an attempt did, and nothing else."""
        every = [x for t in trials for r in t.rounds for x in r]
        if not all(outcome.attempted for outcome in every):
            return NOT_YET
        if limits := [x.stopped for x in every if x.stopped]:
            return make_refusal(make_finding(limits[0], what=LIMITS[limits[0]]))
        if used := [name for outcome in every for name in outcome.used]:
            return make_refusal(make_finding("ready-made", what=f"`{used[0]}`"))
        for trial in trials:
            if finding := self._find_unsteadiness(trial):
                return make_refusal(finding)
        for nth, trial in enumerate(trials):
            if found := self._find_first_wrong(trial):
                return self._refuse(trials, *found, by_heart=nth > 0)
        if own and (handed := self._find_library_answer(every)):
            return make_refusal(make_finding("ready-made", what=f"`{handed}`"))
        return RIGHT

    def _find_unsteadiness(self, trial: Trial) -> Finding | None:
        """Return why equal inputs did not get equal answers, if so.

        Where numbers lie in memory can change the order in which a processor
        adds them, so that equal inputs need not get the same last bits.
        """
        for nth, (one, reseeded, *again) in enumerate(
            zip(*trial.rounds, strict=True)
        ):
            draws = self.make_draws(self.solution, trial.seed, nth)
            if again and not is_same_outcome(again[0], one, draws):
                return make_finding("state")
            if not is_same_outcome(reseeded, one, draws):
                return make_finding("random")
        return None

    def _find_library_answer(self, every: list[Outcome]) -> str | None:
        """Return the library's function that answered, if one did.

        What the solution itself hands its inputs on to is a building block.
        """
        used = [name for outcome in every for name in outcome.library]
        if not used:
            return None
        ours = list_outcomes(self.draw, self.solution, FIRST, watched=True)
        blocks = {name for x in ours for name in x.library}
        blocks -= {write_full_name(self.solution)}
        return next((name for name in used if name not in blocks), None)

    def _find_first_wrong(self, trial: Trial) -> tuple[Case, Finding] | None:
        """Return the first case that went wrong, and how."""
        takes = tuple(inspect.signature(self.solution).parameters)
        with preserve_state():
            for nth, (case, got, want) in enumerate(
                zip(
                    self.draw_cases(trial.seed),
                    trial.rounds[0],
                    list_outcomes(self.draw, self.solution, trial.seed),
                    strict=True,
                )
            ):
                got, want = map(self.compare_by, (got, want))
                draws = self.make_draws(self.solution, trial.seed, nth)
                if finding := find_difference(
                    got, want, takes, self.returns, draws
                ):
                    return case, finding
        return None

    def make_draws(self, answer: Callable, seed: int, nth: int) -> Draws:
        """Return what makes an answer's tensors with random roundings."""

        def made() -> list[tuple[Tensor, ...]]:
            found = draw_outcomes(self.draw, answer, seed, nth)
            for other in (
                self.other_solutions if answer is self.solution else ()
            ):
                found += draw_outcomes(self.draw, other, seed, nth)[1:]
            return [self.compare_by(x).tensors for x in found]

        return made

    def _equals_mistake(
        self, mistake: Mistake, trials: tuple[Trial, ...]
    ) -> bool:
        """Tell whether a mistake does the same as the attempt in every case."""
        return all(
            is_same_outcome(
                *map(self.compare_by, pair),
                self.make_draws(mistake.answer, trial.seed, nth),
            )
            for trial in trials
            for nth, pair in enumerate(
                zip(
                    trial.rounds[0],
                    list_outcomes(self.draw, mistake.answer, trial.seed),
                    strict=True,
                )
            )
        )

    def _refuse(
        self,
        trials: tuple[Trial, ...],
        case: Case,
        finding: Finding,
        by_heart: bool,
    ) -> Verdict:
        """Name the known mistake, or describe the difference."""
        seen = f"{case.tries}, {finding.sentence}"
        end = f"Reread “{self.section}”."
        for mistake in self.mistakes:
            if self._equals_mistake(mistake, trials):
                message = f"because {mistake.because} ({seen}). {end}"
                return Verdict("✗", message, mistake.slug)
        if by_heart:
            return make_refusal(make_finding("hard-coded", what=seen))
        stop = "" if seen.endswith("?") else "."
        return Verdict("✗", f"because, {seen}{stop} {end}", finding.slug)


def make_refusal(finding: Finding) -> Verdict:
    """Return the verdict that words a finding."""
    return Verdict("✗", f"because {finding.sentence}", finding.slug)
