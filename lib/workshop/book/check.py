"""What to run after an edit: `make check`, or `make check SINCE=main`.

Lint, then the tests nearest to each changed file in the import graph, then the
notebook and the page of each changed chapter. The last line says what ran and
what was left out; `make test` runs it all.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from workshop.book.browser import find_chromium
from workshop.book.dependencies import CHAPTER, Dependencies

ROOT = Path()
LISTED = ["ls-files", "-z", "--exclude-standard"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "300"]
BUILD = ["build", ".", "-W", "-n", "--keep-going", "-q"]
HTML = re.compile(r"_config\.yml|_toc\.yml|chapters/.*|lib/.*\.(css|js|svg)")
OTHERS = "not javascript and not browser and not bank"


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
        words: what the cases of parametrised tests are narrowed to.
        chapters: names of the changed chapters.
        page: whether the pages have to be built.
        importing: names of unchanged chapters whose code imports a changed
            module; their notebooks are named and not run.
    """

    tests: list[str] = field(default_factory=list)
    further: int = 0
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
    return Plan(
        sorted(near),
        len(far - near),
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


class CommandRunner:
    """Runs one command after another and remembers how each ended."""

    def __init__(self):
        self.ran: list[str] = []
        self.failed: list[str] = []

    def run(self, name: str, command: list, **more: str) -> None:
        """Run a command; what it prints is shown if it fails."""
        if sys.stderr.isatty():
            print(f"{name} ...", end="\r", file=sys.stderr, flush=True)
        began = time.monotonic()
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | more,
        )
        self.ran.append(f"{name} ({time.monotonic() - began:.0f} s)")
        if done.returncode not in (0, 5):  # 5: pytest was left with no test
            self.failed.append(name)
            print(f"{name} failed:\n{done.stdout}{done.stderr}")


def run_plan(plan: Plan, root: Path = ROOT) -> CommandRunner:
    """Run what was planned."""
    steps, here = CommandRunner(), Path(sys.executable)
    steps.run("lint", ["make", "--no-print-directory", "lint"])
    narrow = {"CHECK_WORDS": json.dumps(plan.words)}
    if plan.tests:
        steps.run(
            f"{len(plan.tests)} tests",
            [
                *(*PYTEST, "-p", "workshop.book.select_tests"),
                *("-n", "2", "--dist", "worksteal", "-m", OTHERS, *plan.tests),
            ],
            **narrow,
        )
    for name in plan.chapters:
        notebook = root / f"chapters/{name}.ipynb"
        steps.run(f"notebook {name}", [*PYTEST, *NBVAL, notebook])
    if plan.page:
        steps.run("book", [here.with_name("jupyter-book"), *BUILD])
        if plan.chapters and find_chromium():
            pages = " or ".join(plan.chapters)
            steps.run(
                f"pages {', '.join(plan.chapters)}",
                [*PYTEST, "-m", "browser", "-k", pages, "tests"],
            )
    return steps


def describe_left_out(plan: Plan) -> str:
    """Return what was not run, in words."""
    found = ["the processors, banks and JavaScript"]
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
    plan = make_plan(ROOT, files)
    steps = run_plan(plan)
    end = f"FAILED: {', '.join(steps.failed)}" if steps.failed else "all passed"
    print(
        f"{len(files)} changed files; ran {', '.join(steps.ran)}: {end}; "
        f"left out: {describe_left_out(plan)}"
    )
    return 1 if steps.failed else 0


if __name__ == "__main__":
    sys.exit(main())
