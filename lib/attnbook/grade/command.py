"""The command line of `python -m attnbook.grade`."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from attnbook.grade import batch, class_report, cluster, report, shards
from attnbook.grade.process_limits import Limits
from attnbook.training.progress import make_progress_bar

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ends


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "python -m attnbook.grade",
        description="Grade notebooks: every exercise of each chapter whose "
        "checks a notebook imports, as many points as it has stars.",
    )
    parser.add_argument("notebook", nargs="*", type=Path)
    parser.add_argument("--csv", type=Path, help="write one row per notebook")
    parser.add_argument("--json", type=Path, help="write all results")
    parser.add_argument(
        "--html", type=Path, help="write a report on the class as a page"
    )
    parser.add_argument(
        "--shard",
        type=read_shard,
        metavar="K/N",
        help="grade only part K of N of the notebooks; needs --json",
    )
    parser.add_argument(
        "--merge",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="grade nothing; merge files that --json has written",
    )
    add_settings(parser)
    return parser


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add how notebooks are graded: in parallel, and with which limits."""
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="number of processes on this machine",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="grade on the Dask cluster of this scheduler",
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


def read_shard(text: str) -> shards.Shard:
    """Return the shard that an argument means."""
    try:
        return shards.parse_shard(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = make_parser()
    options = parser.parse_args(words)
    if options.merge and options.notebook:
        parser.error(
            "--merge takes files that --json has written and grades nothing, "
            f"and there is a notebook: {options.notebook[0]}"
        )
    if not options.merge and not options.notebook:
        parser.error("name the notebooks to grade, or files after --merge")
    if options.shard and not options.json:
        parser.error(
            "--shard needs --json FILE, with one file per shard: merging "
            "reads these files"
        )
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Grade or merge, write, and print a line for each notebook."""
    options = parse_arguments(words)
    try:
        if options.merge:
            write_results(shards.merge(options.merge), options)
        else:
            grade_notebooks(options)
    except ValueError as error:
        print(report.make_writable(str(error)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on here", file=sys.stderr)
        return INTERRUPTED
    return 0


def grade_notebooks(options: argparse.Namespace) -> None:
    """Grade the notebooks; an interrupted run goes on where it was."""
    limits = Limits(whole=options.seconds, memory=options.memory)
    paths = list(dict.fromkeys(options.notebook))
    if options.shard:
        paths = options.shard.select(paths)
    target = options.json or options.csv or options.html
    kept = target and target.with_name(f"{target.name}.unfinished")
    journal = batch.Journal(kept, options.seed, limits)
    found: report.Results = {}
    with (
        make_progress_bar(total=len(paths), unit="notebook") as bar,
        open_workers(options, limits) as run,
    ):
        for path, result in batch.grade_all(paths, journal, run):
            found[path] = result
            bar.update()
    write_results(found, options)
    journal.remove()


@contextmanager
def open_workers(options: argparse.Namespace, limits: Limits) -> Iterator[batch.Run]:
    """Yield the function that grades notebooks, here or on a cluster."""
    if options.scheduler:
        with cluster.connect(options.scheduler) as client:
            yield cluster.make_run(client, options.seed, limits)
    else:
        yield partial(
            batch.grade_in_pool,
            workers=max(1, min(options.workers, len(options.notebook))),
            task=batch.make_task(options.seed, limits),
        )


def write_results(found: report.Results, options: argparse.Namespace) -> None:
    """Print a line for each notebook and write the files."""
    for path in sorted(found):
        print(report.make_writable(report.format_line(path, found[path])))
    format_json = report.format_json
    if options.shard and not options.merge:
        names = "seed", "seconds", "memory"
        format_json = partial(
            shards.format_shard,
            shard=options.shard,
            paths=options.notebook,
            settings={name: getattr(options, name) for name in names},
        )
    for file, make in (
        (options.csv, report.format_csv),
        (options.json, format_json),
        (options.html, class_report.format_html),
    ):
        if file:
            file.write_text(report.make_writable(make(found)), "utf8")
