"""What to run after an edit: `make check`, or `make check SINCE=main`.

The linters of the changed kinds of files, the tests nearest to each changed
file in the import graph, and the notebook and the page of each changed chapter,
two at a time. The last line says what ran and what was left out; `make test`
runs it all.
"""

import argparse
import ast
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from workshop.book.browser import find_chromium
from workshop.book.dependencies import CHAPTER, Dependencies
from workshop.progress import Progress

ROOT = Path()
LISTED = ["ls-files", "-z", "--exclude-standard"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
WORKERS = ["-n", "logical", "--maxprocesses", "4"]
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "300"]
BUILD = ["build", ".", "-W", "-n", "--keep-going", "-q"]
HTML = re.compile(r"_config\.yml|_toc\.yml|chapters/.*|lib/.*\.(css|js|svg)")
# An exercise's own cases of the tests that go through all exercises.
EXERCISE = re.compile(r"lib/attnbook/exercises/\w+/(?!_)\w+\.py")
OF_EXERCISES = (
    "tests/attnbook/exercises/test_exercises.py",
    "tests/attnbook/exercises/test_held_out_answers.py",
    "tests/attnbook/exercises/test_tolerance.py",
    "tests/workshop/book/test_mistakes.py",
)
OTHERS = "not javascript and not browser and not bank"
# Which files need which commands of `make lint`: .pre-commit-config.yaml has
# the same. mypy reads the two packages, whatever else is changed.
PYTHON = r".*\.pyi?|pyproject\.toml"
LINTERS = {
    "python -m ruff check": PYTHON,
    "python -m ruff format --check": PYTHON,
    "python -m mypy": r"lib/.*\.pyi?|pyproject\.toml",
    "oxlint lib": r".*\.js|\.oxlintrc\.json",
    "check-jsonschema --builtin-schema vendor.github-workflows "
    ".github/workflows/*.yml": r"\.github/workflows/.*",
    "check-jsonschema --builtin-schema vendor.citation-file-format "
    "CITATION.cff": r"CITATION\.cff",
    "zizmor --offline --quiet .github": r"\.github/.*",
}
AT_ONCE = 2  # steps, each with one process: what fits two cores


def run_git(root: Path, *words: str) -> list[str]:
    """Return what git prints, cut at its zero bytes."""
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    )
    return [x for x in done.stdout.split("\0") if x]


def list_changed(root: Path, since: str = "HEAD") -> list[str]:
    """Return the files that differ from a commit, new ones among them.

    Args:
        root: the repository.
        since: a commit; of another branch, where the two have parted.

    Raises:
        ValueError: if `since` names no commit.
    """
    try:
        run_git(root, "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}")
    except subprocess.CalledProcessError:
        raise ValueError(f"SINCE={since} names no commit") from None
    found = run_git(root, "diff", "--name-only", "-z", "--merge-base", since)
    return sorted({*found, *run_git(root, *LISTED, "-o")})


@dataclass
class Plan:
    """What is to run.

    Attributes:
        tests: as `file::name`.
        further: how many tests use a changed file at a greater distance.
        of_exercises: files of tests of which only the cases about a changed
            exercise run.
        words: what the cases of parametrised tests are narrowed to.
        chapters: names of the changed chapters.
        page: whether the pages have to be built.
        importing: names of unchanged chapters whose code imports a changed
            module; their notebooks are named and not run.
    """

    tests: list[str] = field(default_factory=list)
    further: int = 0
    of_exercises: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    chapters: list[str] = field(default_factory=list)
    page: bool = False
    importing: list[str] = field(default_factory=list)


def make_plan(root: Path, files: list[str]) -> Plan:
    """Return what to run for changed files: of the tests, the nearest."""
    every = run_git(root, *LISTED, "-c", "-o")
    graph = Dependencies(root, {*every, *files})
    tests = dict(graph.list_tests())
    near, far, words, chapters = set(), set(), set(), set()
    importing = set()
    for file in files:
        source = file.removesuffix(".ipynb") + ".md"
        file = source if CHAPTER.fullmatch(source) else file
        if CHAPTER.fullmatch(file):
            chapters.add(Path(file).stem)
            words |= {Path(file).stem, Path(file).stem[3:]}
        words |= list_assigned_names(root / file)
        steps = graph.measure_distances(file)
        away = {
            name: min(found)
            for name, used in tests.items()
            if (found := [steps[x] for x in used if x in steps])
        }
        own = {name for name in tests if name.startswith(f"{file}::")}
        least = min(away.values(), default=0)
        near |= own or {name for name, n in away.items() if n == least}
        far |= away.keys()
        importing |= {
            Path(user).stem
            for user, used in graph.used_files.items()
            if file in used and CHAPTER.fullmatch(user)
        }
    cases = OF_EXERCISES if any(map(EXERCISE.fullmatch, files)) else ()
    near, far = (
        {x for x in some if x.partition("::")[0] not in cases} for some in (near, far)
    )
    return Plan(
        sorted(near),
        len(far - near),
        sorted(cases),
        sorted(words),
        sorted(chapters),
        any(HTML.fullmatch(file) for file in files),
        sorted(importing - chapters),
    )


def list_assigned_names(path: Path) -> set[str]:
    """Return the public names of objects that a module makes, as exercises."""
    if path.suffix != ".py" or not path.exists():
        return set()
    return {
        target.id
        for node in ast.parse(path.read_text("utf8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.islower()
    }


def list_linters(files: Sequence[str]) -> list[str]:
    """Return the commands of `make lint` that changed files need."""
    return [
        command
        for command, kind in LINTERS.items()
        if any(re.fullmatch(kind, file) for file in files)
    ]


@dataclass
class Step:
    """A command to run.

    Attributes:
        name: what it is called.
        command: the command and its arguments.
        after: the name of a step that it waits for.
        environment: variables to set.
    """

    name: str
    command: list
    after: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class RunningStep:
    """A step that was begun, and the file for its output."""

    step: Step
    process: subprocess.Popen
    out: Path
    began: float

    @property
    def seconds(self) -> float:
        """Return how long it has been running."""
        return time.monotonic() - self.began


def begin_step(step: Step, out: Path) -> RunningStep:
    """Start a step's command; what it prints goes to a file."""
    with out.open("w") as file:
        process = subprocess.Popen(
            list(map(str, step.command)),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | step.environment,
        )
    return RunningStep(step, process, out, time.monotonic())


class CommandRunner:
    """Runs some commands at a time and remembers how each ended."""

    def __init__(self, progress: Progress | None = None):
        self.progress = progress or Progress(sys.stderr)
        self.ran: list[str] = []
        self.failed: list[str] = []

    def run(
        self, steps: Sequence[Step], later: Future[list[Step]] | None = None
    ) -> None:
        """Run steps; what one prints is shown if it fails.

        Args:
            steps: what can begin at once.
            later: more steps, which join the queue as soon as they are known.
        """
        waiting, running = [*steps], []
        with TemporaryDirectory() as folder:
            try:
                while waiting or running or later:
                    if later and later.done():
                        waiting += later.result()
                        later = None
                    names = {x.name for x in waiting}
                    names |= {x.step.name for x in running}
                    ready = [x for x in waiting if x.after not in names]
                    for step in ready[: AT_ONCE - len(running)]:
                        waiting.remove(step)
                        out = Path(folder, step.name.replace("/", "-"))
                        running.append(begin_step(step, out))
                    self._show(running)
                    time.sleep(0.1)
                    ended = [x for x in running if x.process.poll() is not None]
                    for each in ended:
                        running.remove(each)
                        self._finish(each)
            finally:
                for each in running:
                    each.process.kill()

    def _show(self, running: list[RunningStep]) -> None:
        texts = [f"{x.step.name}: {x.seconds:.0f} s" for x in running]
        self.progress.overwrite_line(", ".join(texts))

    def _finish(self, each: RunningStep) -> None:
        name = each.step.name
        self.ran.append(f"{name} ({each.seconds:.0f} s)")
        self.progress.clear_line()
        # 5: pytest was left with no test
        if each.process.returncode not in (0, 5):
            self.failed.append(name)
            print(f"{name} failed:\n{each.out.read_text('utf8', 'replace')}")


def list_book_steps(files: Sequence[str]) -> list[Step]:
    """Return the step that builds the book, if a changed file belongs to it."""
    if not any(map(HTML.fullmatch, files)):
        return []
    here = Path(sys.executable).parent
    return [Step("book", [here / "jupyter-book", *BUILD])]


def list_steps(plan: Plan, files: Sequence[str], root: Path = ROOT) -> list[Step]:
    """Return the steps of a plan, except the one that builds the book."""
    here = Path(sys.executable).parent
    notebooks = [
        Step(
            f"notebook {name}",
            [*PYTEST, *NBVAL, root / f"chapters/{name}.ipynb"],
        )
        for name in plan.chapters
    ]
    steps: list[Step] = []
    if plan.page and plan.chapters and find_chromium():
        pages = " or ".join(plan.chapters)
        # Collecting all test files would take longer than opening the page.
        marked = [
            path
            for path in sorted((root / "tests").rglob("test_*.py"))
            if "mark.browser" in path.read_text("utf8")
        ]
        command = [*PYTEST, "-m", "browser", "-k", pages, *marked]
        name = f"pages {', '.join(plan.chapters)}"
        steps.append(Step(name, command, after="book"))
    steps += notebooks
    if plan.tests or plan.of_exercises:
        alone = [] if plan.page or steps else [*WORKERS, "--dist", "worksteal"]
        select = ["-p", "workshop.book.select_tests", "-m", OTHERS]
        narrow = {
            "CHECK_WORDS": json.dumps(plan.words),
            "CHECK_CASES": json.dumps(plan.of_exercises),
        }
        command = [*PYTEST, *select, *alone, *plan.tests, *plan.of_exercises]
        name = f"{len(plan.tests)} tests"
        name += " and those of the exercise" if plan.of_exercises else ""
        steps.insert(0, Step(name, command, environment=narrow))
    for line in list_linters(files):
        tool = re.sub(r"^python -m | --.*| lib$", "", line)
        text = f"{shlex.quote(str(here))}/{line}"
        steps.append(Step(tool, ["bash", "-c", text]))
    return steps


def describe_left_out(plan: Plan, files: Sequence[str] = ()) -> str:
    """Return what was not run, in words."""
    found = ["the processors, banks and JavaScript"]
    if unchanged := LINTERS.keys() - {*list_linters(files)}:
        found.append(f"{len(unchanged)} linters of other kinds of files")
    if plan.further:
        found.append(f"{plan.further} tests that are further away")
    notebooks = "other notebooks" if plan.chapters else "notebooks"
    if plan.importing:
        notebooks += f" (changed code is used in {', '.join(plan.importing)})"
    found.append(notebooks)
    if not plan.page:
        found.append("the pages")
    elif not find_chromium():
        found.append("every browser check, for want of a Chromium")
    else:
        found.append("the other pages in a browser")
    return ", ".join(found)


def main(words: list[str] | None = None) -> int:
    """Find what has changed, run what belongs to it, and say so in a line."""
    parser = argparse.ArgumentParser("python -m workshop.book.check")
    parser.add_argument("since", nargs="?", default="HEAD")
    try:
        files = list_changed(ROOT, parser.parse_args(words).since)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    steps, plan = CommandRunner(), Plan()

    def list_other_steps() -> list[Step]:
        nonlocal plan
        plan = make_plan(ROOT, files)
        return list_steps(plan, files)

    # Reading the import graph takes as long as building the book.
    with ThreadPoolExecutor(1) as pool:
        steps.run(list_book_steps(files), pool.submit(list_other_steps))
    end = f"FAILED: {', '.join(steps.failed)}" if steps.failed else "all passed"
    print(
        f"{len(files)} changed files; ran {', '.join(steps.ran)}: {end}; "
        f"left out: {describe_left_out(plan, files)}"
    )
    return 1 if steps.failed else 0


if __name__ == "__main__":
    sys.exit(main())
