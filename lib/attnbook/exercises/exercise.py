"""The exercise: its declaration and the verdict on an attempt.

Only `runner.run` calls the learner's function, on cases, and returns outcomes
as data; it can therefore run in another process. The verdict is reached from
data alone, where the learner's code cannot change it.
"""

import inspect
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbook.exercises.by_heart import looks_hard_coded
from attnbook.exercises.cached_outcomes import (
    draw_cases,
    draw_outcomes,
    list_outcomes,
    read_trial,
)
from attnbook.exercises.derived_cases import DerivedCases
from attnbook.exercises.difference import Roundings, find_difference
from attnbook.exercises.guard import ATTENTION, preserve_state, write_full_name
from attnbook.exercises.hint import Hint, decides, write_hint
from attnbook.exercises.limits import SHOWN
from attnbook.exercises.mistake import Mistake, Trial
from attnbook.exercises.named_axes import FIRST
from attnbook.exercises.old_verdict import (
    LIMITS,
    YOURS,
    Finding,
    Verdict,
    describe_case,
    lower_first,
    make_finding,
    make_refusal,
    make_remark,
    write_seen,
)
from attnbook.exercises.outcome import (
    Case,
    Draws,
    Outcome,
    cover_nan,
    is_same_outcome,
)
from attnbook.exercises.runner import run, run_rounds

__all__ = ["FIRST", "Case", "Exercise", "Mistake", "Outcome", "Verdict", "run"]

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
        remarks: right answers that fail beyond what the exercise asks, each
            with what to say about it.
        allowed: which calls may be used, in words.
        forbidden: names of the torch functions that may not.
        compare_by: returns the part of an outcome that is compared, where
            right answers may differ in the rest, such as a constant that a
            softmax removes.
        other_solutions: other right formulas, whose larger rounding errors are
            allowed as well.
        helpers: functions that the solution calls and that a chapter shows
            with it.
        same_precision: whether the exercise asks for a result in the precision
            of the inputs; if not, one in single precision is as right.
        without: kinds of derived cases that the exercise's words exclude.
        compared: what `compare_by` does to the returned numbers, in words that
            begin the sentence about them.
        key_line: the line for the third hint, which else chooses one.
    """

    title: str
    stars: int
    minutes: int
    section: str
    solution: Callable
    returns: tuple[str, ...]
    draw: Callable[[torch.Generator], tuple[Case, ...]]
    mistakes: tuple[Mistake, ...] = ()
    remarks: tuple[Mistake, ...] = ()
    allowed: str = "Everything is allowed but a ready-made attention."
    forbidden: frozenset[str] = ATTENTION
    compare_by: Callable[[Outcome], Outcome] = lambda outcome: outcome
    other_solutions: tuple[Callable, ...] = ()
    helpers: tuple[Callable, ...] = ()
    same_precision: bool = False
    without: frozenset[str] = frozenset()
    compared: str = ""
    key_line: str = ""

    def __post_init__(self):
        """Make the wrong answers, and cases that follow from the axes."""
        for kind in ("mistakes", "remarks"):
            made = (x.make_answer(self.solution) for x in getattr(self, kind))
            object.__setattr__(self, kind, tuple(made))
        if not isinstance(self.draw, DerivedCases):
            more = DerivedCases(self.draw, self.solution, self.without)
            object.__setattr__(self, "draw", more)

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
            given = attempt, self.draw_cases(seed), self.forbidden
            # Only the run on the first seed is thorough.
            found = run_rounds(*given, shown, thorough=not trials)
            trials.append(Trial(seed, found))
            if any(outcome.stopped for r in found for outcome in r):
                break
        return tuple(trials)

    def hint(self, step: int = 1) -> Hint:
        """Return a hint: 1 is a question, 2 is what is needed, 3 is a line."""
        return write_hint(self, step)

    def judge(self, trials: tuple[Trial, ...], own: bool = True) -> Verdict:
        """Reach a verdict from what an attempt did, and nothing else."""
        every = [x for t in trials for r in t.rounds for x in r]
        if not any(outcome.attempted for outcome in every):
            return NOT_YET
        if (stopped := self._find_limit(trials)) is not None:
            return stopped
        if used := [name for outcome in every for name in outcome.used]:
            return make_refusal(make_finding("ready-made", what=f"`{used[0]}`"))
        for trial in trials:
            if (unsteady := self._find_unsteadiness(trial)) is not None:
                return unsteady
        trials = tuple(read_trial(self.draw, self.solution, x) for x in trials)
        found = [self._list_differences(trial) for trial in trials]
        for nth, differences in enumerate(found):
            if any(not x.harmless for x in differences.values()):
                return self._refuse(trials, found, nth)
        if own and (handed := self._find_library_answer(every)):
            return make_refusal(make_finding("ready-made", what=f"`{handed}`"))
        return replace(RIGHT, remarks=self._write_remarks(trials, found))

    def _describe(self, trial: Trial, nth: int) -> str:
        """Return what the nth case of a trial tries, with its inputs."""
        takes = tuple(inspect.signature(self.solution).parameters)
        return describe_case(self.draw_cases(trial.seed)[nth], takes)

    def _refuse_in_case(self, finding: Finding, tried: str) -> Verdict:
        """Return the refusal for what is wrong in a case."""
        name = YOURS if decides(self) else ""
        return make_refusal(finding, tried, self.section, name)

    def _find_limit(self, trials: tuple[Trial, ...]) -> Verdict | None:
        """Return the refusal of an attempt that ran into a limit."""
        for trial in trials:
            for outcomes in trial.rounds:
                for nth, outcome in enumerate(outcomes):
                    if slug := outcome.stopped:
                        found = make_finding(slug, what=LIMITS[slug])
                        tried = self._describe(trial, nth)
                        return self._refuse_in_case(found, tried)
        return None

    def _find_unsteadiness(self, trial: Trial) -> Verdict | None:
        """Return the refusal if equal inputs did not get equal answers.

        Where numbers lie in memory can change the order in which a processor
        adds them, so that equal inputs need not get the same last bits.
        """
        pairs = zip(*trial.rounds, strict=True) if trial.rounds[1:] else ()
        for nth, (one, reseeded, *again) in enumerate(pairs):
            draws = self.make_draws(self.solution, trial.seed, nth)
            slug = ""
            if again and not is_same_outcome(again[0], one, draws):
                slug = "state"
            elif not is_same_outcome(reseeded, one, draws):
                slug = "random"
            if slug:
                tried = f"twice {self._describe(trial, nth)}"
                return self._refuse_in_case(make_finding(slug), tried)
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

    def _list_differences(self, trial: Trial) -> dict[int, Finding]:
        """Return what is wrong, by the place of its case."""
        takes = tuple(inspect.signature(self.solution).parameters)
        found: dict[int, Finding] = {}
        with preserve_state():
            for nth, (case, got, want) in enumerate(
                zip(
                    self.draw_cases(trial.seed),
                    trial.rounds[0],
                    list_outcomes(self.draw, self.solution, trial.seed),
                    strict=True,
                )
            ):
                if case.kind == "nan":
                    got = cover_nan(got, want)
                got, want = map(self.compare_by, (got, want))
                roundings = self.make_roundings(trial.seed, nth)
                if finding := find_difference(
                    got, want, takes, self.returns, roundings
                ):
                    exact = self.same_precision and finding.slug == "dtype"
                    harmless = finding.harmless and not exact
                    layout = case.kind == "layout" and finding.slug == "error"
                    beyond = harmless or layout or not case.asked
                    seen = write_seen(finding, self.compared)
                    found[nth] = replace(finding, seen=seen, harmless=beyond)
        return found

    def make_roundings(self, seed: int, nth: int) -> Roundings:
        """Return what the solution gives with random roundings."""
        return Roundings(
            self.make_draws(self.solution, seed, nth),
            self.make_draws(self.solution, seed, nth, torch.float32),
        )

    def make_draws(
        self,
        answer: Callable,
        seed: int,
        nth: int,
        precision: torch.dtype | None = None,
    ) -> Draws:
        """Return what makes an answer's tensors with random roundings."""

        def made(count: int) -> list[tuple[Tensor, ...]]:
            others = self.other_solutions if answer is self.solution else ()
            found: list[Outcome] = []
            for each in (answer, *others):
                drawn = draw_outcomes(self.draw, each, seed, nth, precision)
                found += drawn.take(count)[bool(found) :]
            return [self.compare_by(x).tensors for x in found]

        return made

    def _equals_in_case(
        self, answer: Callable, trial: Trial, nth: int, want: Outcome
    ) -> bool:
        """Tell whether an answer of ours does the same in one case."""
        return is_same_outcome(
            *map(self.compare_by, (trial.rounds[0][nth], want)),
            self.make_draws(answer, trial.seed, nth),
        )

    def _equals_mistake(
        self,
        mistake: Mistake,
        trials: tuple[Trial, ...],
        only: set[tuple[int, int]] | None = None,
    ) -> bool:
        """Tell whether a mistake does the same as the attempt.

        In every case, or only in those of some seeds and places.
        """
        return all(
            self._equals_in_case(mistake.answer, trial, nth, want)
            for trial in trials
            for nth, want in enumerate(
                list_outcomes(self.draw, mistake.answer, trial.seed)
            )
            if only is None or (trial.seed, nth) in only
        )

    def _list_remarked(self, trials: tuple[Trial, ...]) -> set[tuple[int, int]]:
        """Return seed and place of cases where the attempt is as a remark says.

        There the attempt fails, with a mistake or without one.
        """
        return {
            (trial.seed, nth)
            for trial in trials
            for nth, case in enumerate(self.draw_cases(trial.seed))
            if not case.asked
            and any(
                self._equals_mistake(x, (trial,), only={(trial.seed, nth)})
                for x in self.remarks
            )
        }

    def _refuse(
        self,
        trials: tuple[Trial, ...],
        found: list[dict[int, Finding]],
        which: int,
    ) -> Verdict:
        """Name the known mistake, or describe the first difference."""
        wrong = {
            (trial.seed, nth)
            for trial, differences in zip(trials, found, strict=True)
            for nth, finding in differences.items()
            if not finding.harmless
        }
        trial = trials[which]
        places = sorted(nth for seed, nth in wrong if seed == trial.seed)
        clear = [nth for nth in places if found[which][nth].clear]
        nth = (clear or places)[0]
        finding, tried = found[which][nth], self._describe(trial, nth)
        cases = {
            (trial.seed, nth): case
            for trial in trials
            for nth, case in enumerate(self.draw_cases(trial.seed))
        }
        rest = cases.keys() - self._list_remarked(trials)
        plain = {place for place in rest if not cases[place].kind}
        tiers = [None, rest] if rest != cases.keys() else [None]
        tiers += [plain] if plain & wrong and plain != rest else []
        for only in tiers:
            for mistake in self.mistakes:
                if self._equals_mistake(mistake, trials, only):
                    named = replace(finding, slug=mistake.slug, likely=mistake.because)
                    return self._refuse_in_case(named, tried)
        if which and looks_hard_coded(
            [self.draw_cases(x.seed) for x in (trials[0], trial)],
            {nth for seed, nth in wrong if seed == trial.seed},
        ):
            learned = make_finding("hard-coded", what=lower_first(finding.seen))
            return self._refuse_in_case(learned, tried)
        # Right in some cases where the mistake is wrong.
        near = [x for x in self.mistakes if self._equals_mistake(x, trials, wrong)]
        if len(near) == 1:
            finding = replace(finding, likely=near[0].because)
        elif not finding.likely:
            finding = replace(finding, likely=cases[trial.seed, nth].likely)
        return self._refuse_in_case(finding, tried)

    def _write_remarks(
        self, trials: tuple[Trial, ...], found: list[dict[int, Finding]]
    ) -> tuple[str, ...]:
        """Return what to say about a right answer, each thing once."""
        remarks: dict[str, str] = {}
        for trial, differences in zip(trials, found, strict=True):
            for nth, finding in differences.items():
                for known in self.remarks:
                    if self._equals_mistake(known, (trial,), only={(trial.seed, nth)}):
                        remarks.setdefault(known.slug, known.because)
                        break
                else:
                    case = self.draw_cases(trial.seed)[nth]
                    remarks.setdefault(finding.slug, make_remark(finding, case))
        return tuple(remarks.values())
