"""The command line of `python -m attnbook.grade`."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm.auto import tqdm

from attnbook.grade import pool, report, sandbox
from attnbook.grade.sandbox import Limits

UNSAFE = (
    "This platform cannot isolate a notebook from your files and processes: "
    "grade notebooks of strangers in a container without a network."
)
INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ends
# The options that say where results go, and how notebooks are graded.
FILES = {
    "--csv": "write one row per notebook",
    "--json": "write all results",
    "--html": "write a report on the class as a page",
}
NUMBERS = {
    "--workers": (os.cpu_count() or 1, "notebooks that are graded at the same time"),
    "--seed": (0, "seed of the second inputs"),
    "--seconds": (Limits.whole, "time limit per notebook"),
    "--memory": (Limits.memory, "megabytes per process"),
}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "python -m attnbook.grade",
        description="Grade notebooks: every exercise of each chapter whose "
        "checks a notebook imports, as many points as it has stars.",
    )
    parser.add_argument("notebook", nargs="+", type=Path, help="or a folder of them")
    for name, words in FILES.items():
        parser.add_argument(name, type=Path, help=words)
    for name, (usual, words) in NUMBERS.items():
        words = f"{words} (default: %(default)s)"
        parser.add_argument(name, type=type(usual), default=usual, help=words)
    words = "grade only this exercise, such as check_context; may be repeated"
    parser.add_argument("--exercise", action="append", metavar="NAME", help=words)
    return parser


def list_notebooks(given: Sequence[Path]) -> list[Path]:
    """Return the notebooks that are named, and those in folders that are named."""
    found: dict[Path, None] = {}
    for path in given:
        folder = path.is_dir() and path.suffix != ".ipynb"
        inside = sorted(path.glob("*.ipynb")) if folder else [path]
        if not os.path.lexists(path):
            raise ValueError(f"there is no file or folder {str(path)!r}")
        if not inside:
            raise ValueError(f"the folder {str(path)!r} holds no .ipynb file")
        found |= dict.fromkeys(inside)
    return [*found]


def main(words: Sequence[str] | None = None) -> int:
    """Grade, write, and print a line for each notebook."""
    options = make_parser().parse_args(words)
    try:
        grade_notebooks(options)
    except (OSError, ValueError) as error:
        print(report.make_writable(str(error)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on here", file=sys.stderr)
        return INTERRUPTED
    return 0


def grade_notebooks(options: argparse.Namespace) -> None:
    """Grade the notebooks; an interrupted run goes on where it was."""
    paths = list_notebooks(options.notebook)
    if not sandbox.is_complete():
        print(UNSAFE, file=sys.stderr)
    limits = Limits(whole=options.seconds, memory=options.memory)
    given = {"exercises": options.exercise, "seed": options.seed, "limits": limits}
    grade = partial(pool.grade_notebook, **given)
    target = options.json or options.csv or options.html
    kept = target and target.with_name(f"{target.name}.unfinished")
    journal = pool.Journal(kept, options.seed, limits, options.exercise)
    found: report.Results = {}
    with tqdm(total=len(paths), unit="notebook", disable=None) as bar:
        workers = min(options.workers, len(paths))
        for path, result in pool.grade_all(paths, journal, grade, workers):
            found[path] = result
            bar.update()
    report.write_results(found, options.csv, options.json, options.html)
    if kept:
        kept.unlink(missing_ok=True)
