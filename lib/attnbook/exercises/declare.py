"""How an exercise is declared: its solution, its cases, its known mistakes.

    check_scores = Exercise(
        scores,
        cases,
        stars=1,
        minutes=5,
        section="Scaled dot products",
        mistakes={
            "unscaled": ("the scores are not divided by √D", " / D**0.5 → "),
        },
    )

`check_scores(answer)` gives a verdict. The learner's code is called only in
`Exercise.run_attempt`, which returns data and can run in another process;
`Exercise.judge` reaches the verdict from that data alone.
"""

import functools
import inspect
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnbook.exercises.check import (
    Case,
    Outcome,
    Rounds,
    did_the_same,
    find_difference,
    is_unchanged,
    keep_result,
    run,
    run_rounds,
    without_limit,
)
from attnbook.exercises.isolation import ATTENTION, Guard, neutral_settings
from attnbook.exercises.verdict import (
    NOT_YET,
    RIGHT,
    Finding,
    Verdict,
    describe_input,
    make_finding,
    refuse,
)

__all__ = [
    "ATTENTION",
    "FIRST",
    "Case",
    "Draw",
    "Exercise",
    "Mistake",
    "differ",
    "fill",
]

FIRST = 2014  # the seed of the cases that are the same for everyone

# A wrong answer: `old → new` in the solution's text, several of them separated
# by ` ; `, or a function.
Wrong = str | Callable


@dataclass(frozen=True)
class Mistake:
    """A wrong answer known by name: `because` follows "Most likely,".

    Each of the spellings, applied to the exercise's solution, makes this mistake.
    """

    slug: str
    because: str
    solution: Callable
    spellings: Sequence[Wrong]

    @functools.cached_property
    def answers(self) -> tuple[Callable, ...]:
        """The functions that make the mistake."""
        return tuple(edit(self.solution, x) for x in self.spellings)


class Draw(torch.Generator):
    """Random inputs of cases, from one seed."""

    def __new__(cls, seed: int):
        """Make a generator on the CPU."""
        return super().__new__(cls)

    def __init__(self, seed: int):
        self.manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(*shape, generator=self, dtype=torch.float64).to(dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Return integers from low to high, both included."""
        return torch.randint(low, high + 1, shape, generator=self)

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return int(self.integers(low, high))

    def shuffle(self, given: Iterable) -> list:
        """Return the same things in a random order."""
        found = list(given)
        return [found[i] for i in torch.randperm(len(found), generator=self).tolist()]

    def low_query_key(
        self, T: int, S: int, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Return a query (T, 4) and a key (S, 4) whose scores are far below zero.

        Divided by √4 they are all -2^40, in half precision -2^14: below -1e9 and
        below -1e4. No order of operations rounds products of powers of two.
        """
        low, high = (7, 8) if dtype == torch.float16 else (20, 21)
        query, key = torch.zeros(T, 4, dtype=dtype), torch.zeros(S, 4, dtype=dtype)
        place = self.whole(0, 3)
        query[:, place], key[:, place] = 2.0**low, -(2.0**high)
        return query, key


@dataclass(frozen=True, eq=False, repr=False)
class Exercise:
    """A question that checks its answers.

    Attributes:
        solution: the right answer; its parameters name the inputs.
        cases: yields the calls, simplest first: what each tries and then its inputs,
            or a `Case`.
        stars: 1 (a few lines) to 3 (think first).
        minutes: how long it takes most people.
        section: the heading to reread after a wrong answer.
        mistakes: by slug, a clause and the wrong answer, or a list of spellings;
            afterwards a tuple of `Mistake`.
        title: the topic; unless given, the solution's name.
        returns: the names of what it returns.
        forbidden: names of PyTorch's functions that may not be called.
        library: functions of the library that may not be called either, beside the
            solution, its helpers and functions of the solution's name.
        helpers: functions that the solution calls and that a chapter shows with it.
        compare: returns what is compared, from what an answer returned and the
            inputs: the output of a returned model, for example.
        same_type: whether a result in single precision is wrong where the
            solution's is in another.
        hints: two sentences, of which the second says more.
    """

    solution: Callable
    cases: Callable[[Draw], Iterable]
    _: KW_ONLY
    stars: int
    minutes: int
    section: str
    mistakes: Any = ()
    title: str = ""
    returns: Sequence[str] = ("result",)
    forbidden: frozenset[str] = ATTENTION
    library: Sequence[Callable] = ()
    helpers: Sequence[Callable] = ()
    compare: Callable = keep_result
    same_type: bool = False
    hints: Sequence[str] = ()
    runs_here = True  # False where what runs the answers is missing

    def __post_init__(self):
        made = (
            Mistake(slug, why, self.solution, x if isinstance(x, list) else [x])
            for slug, (why, x) in dict(self.mistakes).items()
        )
        object.__setattr__(self, "mistakes", tuple(made))

    def __repr__(self) -> str:
        title = self.title or self.solution.__name__.replace("_", " ")
        return f"{'★' * self.stars} {self.minutes} minutes: {title}"

    def __call__(
        self, attempt: object, fresh: int | None = None, own: bool = True
    ) -> Verdict:
        """Check an answer on the first inputs, then on fresh ones of a random seed.

        Unless it must be one's own, the library's function is accepted, too.
        """
        if attempt is ...:
            return NOT_YET
        if not callable(attempt):
            kind = f"an object of type {type(attempt).__name__}"
            return refuse(make_finding("not-a-function", got=kind))
        fresh = secrets.randbits(31) if fresh is None else fresh
        return self.judge(self.run_attempt(attempt, (FIRST, fresh), own))

    def run_attempt(
        self, attempt: Callable, seeds: Sequence[int], own: bool = True
    ) -> dict[int, Rounds]:
        """Run an attempt on the cases of each seed, until it is stopped.

        The texts, numbers and tensors returned can be sent to another process.
        """
        attempt = self.bind(attempt, own)
        with neutral_settings():
            guard = Guard(self.forbidden, self._list_ready_made() if own else ())
            found: dict[int, Rounds] = {}
            for seed in seeds:
                cases = draw_cases(self.cases, seed)
                rounds = run_rounds(attempt, cases, guard, self.compare, not found)
                found[seed] = rounds
                if any(x.stopped for outcomes in rounds for x in outcomes):
                    break
        return found

    def bind(self, answer: Callable, own: bool = False) -> Callable:
        """Return what is called with the inputs of a case: the answer."""
        return answer

    def judge(self, found: Mapping[int, Rounds]) -> Verdict:
        """Reach a verdict from what an attempt did, and nothing else."""
        every = [x for rounds in found.values() for r in rounds for x in r]
        if used := [x.used for x in every if x.used]:
            return refuse(make_finding("ready-made", got=f"`{used[0]}`"))
        if not any(x.attempted for x in every):
            return NOT_YET
        with neutral_settings():
            return self._judge(found)

    def hint(self, step: int = 1) -> str:
        """Return a hint; the last one says most.

        Raises:
            ValueError: if there is no such hint.
        """
        hints = self.hints or [f"Reread the section “{self.section}”."]
        if not 1 <= step <= len(hints):
            raise ValueError(f"there are hints 1 to {len(hints)}, and no hint {step}")
        return Hint(f"Hint {step} of {len(hints)}: {hints[step - 1]}")

    def _list_ready_made(self) -> Iterator[Callable]:
        """Yield the library's functions that compute the whole answer."""
        yield from (self.solution, *self.library, *self.helpers)
        name = self.solution.__name__
        if name in self.solution.__code__.co_names:
            return  # the solution itself calls a function of its name
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("attnbook."):
                twin = vars(module).get(name)
                if getattr(twin, "__module__", "").startswith("attnbook."):
                    yield twin

    def _judge(self, found: Mapping[int, Rounds]) -> Verdict:
        """Reach the verdict on an attempt that is no stub."""
        trials = [x for seed in found for x in self._list_trials(seed, found[seed])]
        for trial in trials:
            if slug := trial.find_trouble():
                tried = self._describe(trial.case)
                return refuse(make_finding(slug), tried, self.section)
        wrong = [x for x in trials if x.finding]
        if not wrong:
            return RIGHT
        finding = wrong[0].finding
        if mistake := self._find_mistake(trials, wrong):
            finding = Finding(mistake.slug, finding.seen, mistake.because)
        elif is_hard_coded(trials):
            finding = make_finding("hard-coded", got=finding.seen)
        return refuse(finding, self._describe(wrong[0].case), self.section)

    def _list_trials(self, seed: int, rounds: Rounds) -> Iterator["Trial"]:
        """Yield what an attempt did in each case of a seed, and what is wrong."""
        # An attempt that was stopped has no outcome of the cases that would follow.
        stopped = any(x.stopped for outcomes in rounds for x in outcomes)
        given = draw_cases(self.cases, seed), run_solution(self, seed), rounds[0]
        for nth, (case, want, got) in enumerate(zip(*given, strict=not stopped)):
            found = find_difference(
                got, want, self._takes, self.returns, self.same_type
            )
            outcomes = tuple(x[nth] for x in rounds if nth < len(x))
            yield Trial(seed, case, outcomes, found)

    @property
    def _takes(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(inspect.signature(self.bind(self.solution)).parameters)

    def _describe(self, case: Case) -> str:
        """Return what a case tries, with the names and shapes of its inputs."""
        found = ", ".join(filter(None, map(describe_input, self._takes, case.inputs)))
        return f"{case.tries}: {found}" if found else case.tries

    def _find_mistake(
        self, trials: Sequence["Trial"], wrong: Sequence["Trial"]
    ) -> Mistake | None:
        """Return the known mistake that does what an attempt did in every case.

        Or the only one that does so in the wrong cases, where tensors are compared:
        it is a mistake that is avoided in some cases. Cases where the type is wrong,
        such as those in half precision, are left out if others are wrong, too.
        """
        wrong = [x for x in wrong if x.finding.slug != "dtype"] or wrong
        rest = [x for x in trials if not x.finding]
        telling = any("tensor" in x.rounds[0].form for x in wrong)
        partly = []

        def agrees(answer: Callable, trial: Trial) -> bool:
            case = without_limit(trial.case, trial.rounds[0])
            again = run(self.bind(answer), case, read=self.compare)
            return did_the_same(trial.rounds[0], again)

        for mistake in self.mistakes:
            for answer in mistake.answers:
                if all(agrees(answer, x) for x in wrong):
                    if all(agrees(answer, x) for x in rest):
                        return mistake
                    partly.append(mistake)
        return partly[0] if telling and len(partly) == 1 else None


@dataclass(frozen=True)
class Trial:
    """What an attempt did in one case: its outcome in each round."""

    seed: int
    case: Case
    rounds: tuple[Outcome, ...]
    finding: Finding | None

    def find_trouble(self) -> str:
        """Return the slug of a limit, or of other results of equal inputs; or none."""
        one, *more = self.rounds
        if self.rounds[-1].stopped:
            return self.rounds[-1].stopped
        if more[1:] and not did_the_same(more[1], one):
            return "state"
        return "random" if more and not did_the_same(more[0], one) else ""


def is_hard_coded(trials: Sequence[Trial]) -> bool:
    """Tell whether an attempt is right at first and wrong on all new inputs."""
    first = [x for x in trials if x.seed == trials[0].seed]
    pairs = zip(first, trials[len(first) :], strict=False)
    new = [y for x, y in pairs if not is_unchanged(y.case.inputs, x.case.inputs)]
    wrong = [bool(x.finding) for x in first], [bool(x.finding) for x in new]
    return bool(new) and all(wrong[1]) and not any(wrong[0])


@functools.lru_cache(maxsize=32)
def draw_cases(cases: Callable[[Draw], Iterable], seed: int) -> tuple[Case, ...]:
    """Return the cases drawn from a seed; every call gets copies of their inputs."""
    with neutral_settings():
        return tuple(
            x if isinstance(x, Case) else Case(x[0], tuple(x[1:]))
            for x in cases(Draw(seed))
        )


@functools.lru_cache(maxsize=32)
def run_solution(exercise: Exercise, seed: int) -> tuple[Outcome, ...]:
    """Return what the solution gives in the cases of a seed."""
    cases = (replace(x, memory=None) for x in draw_cases(exercise.cases, seed))
    solution = exercise.bind(exercise.solution)
    found = tuple(run(solution, x, read=exercise.compare) for x in cases)
    if bad := [x.form for x in found if not (x.tensors or x.error)]:
        raise TypeError(f"{exercise} has a solution that returns {bad[0]}")
    return found


class Hint(str):
    """A hint, shown as its text."""

    __repr__ = str.__str__


def edit(solution: Callable, wrong: Wrong) -> Callable:
    """Return a wrong answer: the solution with some text of its body replaced."""
    if callable(wrong):
        return wrong
    source = inspect.getsource(solution)
    # Without decorators: Triton's needs source in a file.
    head, about, body = source[source.index("def ") :].split('"""', 2)
    for change in wrong.split(" ; "):
        old, _, new = change.partition(" → ")
        if (count := body.count(old)) != 1:
            raise ValueError(
                f"{old!r} occurs {count} times in the body of {solution.__name__}; "
                "it must occur exactly once"
            )
        body = body.replace(old, new)
    code = compile(f'{head}"""{about}"""{body}', "<mistake>", "exec")
    found: dict[str, Callable] = {}
    exec(code, vars(sys.modules[solution.__module__]), found)
    return found[solution.__name__]


def fill(scores: Tensor, mask: Tensor, number: float = -torch.inf) -> Tensor:
    """Return scores with a number where the mask is False."""
    return scores.masked_fill(~mask, number)


def differ(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors differ by more than rounding."""
    return not torch.allclose(a, b, atol=1e-4)
