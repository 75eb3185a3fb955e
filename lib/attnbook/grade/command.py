"""The command line of `python -m attnbook.grade`."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from attnbook.grade import batch, report
from attnbook.grade.process_limits import Limits
from attnbook.training.progress import make_progress_bar


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = argparse.ArgumentParser(
        "python -m attnbook.grade",
        description="Grade notebooks: every exercise of each chapter whose "
        "checks a notebook imports, as many points as it has stars.",
    )
    parser.add_argument("notebook", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, help="write one row per notebook")
    parser.add_argument("--json", type=Path, help="write all results")
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="number of processes",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the second inputs"
    )
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
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Grade, write, and print a line for each notebook."""
    options = parse_arguments(words)
    limits = Limits(whole=options.seconds, memory=options.memory)
    paths = list(dict.fromkeys(options.notebook))
    target = options.json or options.csv
    kept = target and target.with_name(f"{target.name}.unfinished")
    journal = batch.Journal(kept, options.seed, limits)
    found: report.Results = {}
    with make_progress_bar(total=len(paths), unit="notebook") as bar:
        todo = batch.make_task(options.seed, limits)
        workers = max(1, min(options.workers, len(paths)))
        for path, result in batch.grade_all(paths, journal, workers, todo):
            found[path] = result
            bar.update()
    for path in sorted(found):
        print(report.make_writable(report.format_line(path, found[path])))
    for file, make in (
        (options.csv, report.format_csv),
        (options.json, report.format_json),
    ):
        if file:
            file.write_text(report.make_writable(make(found)), "utf8")
    journal.remove()
    return 0
