"""The command line of `python -m attnbook.grade`."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from attnbook.grade import pool, report
from attnbook.grade.sandbox import Limits
from attnbook.training.progress import make_progress_bar

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ends


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "python -m attnbook.grade",
        description="Grade notebooks: every exercise of each chapter whose "
        "checks a notebook imports, as many points as it has stars.",
    )
    parser.add_argument(
        "notebook", nargs="+", type=Path, help="a notebook, or a folder of them"
    )
    parser.add_argument("--csv", type=Path, help="write one row per notebook")
    parser.add_argument("--json", type=Path, help="write all results")
    parser.add_argument(
        "--html", type=Path, help="write a report on the class as a page"
    )
    parser.add_argument(
        "--exercise",
        action="append",
        metavar="NAME",
        help="grade only this exercise, such as check_context; may be repeated",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="number of notebooks that are graded at the same time",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the second inputs")
    parser.add_argument(
        "--seconds",
        type=float,
        default=Limits.whole,
        help="time limit per notebook",
    )
    parser.add_argument(
        "--memory",
        type=int,
        default=Limits.memory,
        help="megabytes per process",
    )
    return parser


def list_notebooks(given: Sequence[Path]) -> list[Path]:
    """Return the notebooks that are named, and those in folders that are named.

    Raises:
        ValueError: if one does not exist, or a folder holds no notebook.
    """
    found: list[Path] = []
    for path in given:
        if path.is_dir() and path.suffix != ".ipynb":
            inside = sorted(path.glob("*.ipynb"))
            if not inside:
                raise ValueError(f"the folder {str(path)!r} holds no .ipynb file")
            found += inside
        elif os.path.lexists(path):
            found.append(path)
        else:
            raise ValueError(f"there is no file or folder {str(path)!r}")
    return list(dict.fromkeys(found))


def main(words: Sequence[str] | None = None) -> int:
    """Grade, write, and print a line for each notebook."""
    options = make_parser().parse_args(words)
    try:
        grade_notebooks(options)
    except ValueError as error:
        print(report.make_writable(str(error)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on here", file=sys.stderr)
        return INTERRUPTED
    return 0


def grade_notebooks(options: argparse.Namespace) -> None:
    """Grade the notebooks; an interrupted run goes on where it was.

    Raises:
        ValueError: if there is no notebook or exercise of a name.
    """
    paths = list_notebooks(options.notebook)
    limits = Limits(whole=options.seconds, memory=options.memory)
    lacking: set[str] = set()
    grade = partial(
        pool.grade_notebook,
        exercises=options.exercise,
        seed=options.seed,
        limits=limits,
        tell=lacking.add,
    )
    target = options.json or options.csv or options.html
    kept = target and target.with_name(f"{target.name}.unfinished")
    journal = pool.Journal(kept, options.seed, limits, options.exercise)
    found: report.Results = {}
    with make_progress_bar(total=len(paths), unit="notebook") as bar:
        workers = min(options.workers, len(paths))
        for path, result in pool.grade_all(paths, journal, grade, workers):
            found[path] = result
            bar.update()
    report.write_results(found, options.csv, options.json, options.html)
    journal.remove()
    for what in sorted(lacking - {""}):
        print(
            f"This platform cannot {what} while a notebook is graded: grade "
            "notebooks of strangers in a container without a network.",
            file=sys.stderr,
        )
