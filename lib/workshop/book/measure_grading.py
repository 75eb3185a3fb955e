"""What grading takes: each exercise's check, and a class of notebooks.

`python -m workshop.book.measure_grading [--notebooks N] [--workers 1 2]` waits
until no recorded run uses the machine, then times.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

import nbformat
import torch

from attnbook.grade import batch, report
from attnbook.grade.process_limits import Limits
from workshop.book import classroom
from workshop.book.catalogue import list_entries
from workshop.experiments.cores import hold_cores


def time_call(work) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def time_checks() -> Iterator[tuple[float, float, str]]:
    """Yield for each exercise what a right answer takes, and the slowest wrong.

    What a right answer takes is the median of three checks.
    """
    for entry in list_entries():
        exercise = entry.exercise
        right = [
            time_call(lambda e=exercise, n=n: e(e.solution, n, own=False))
            for n in range(3)  # a draw each: what is drawn is remembered
        ]
        wrong = [
            time_call(lambda e=exercise, m=mistake, n=n: e(m.answer, n))
            for n, mistake in enumerate(exercise.mistakes, 3)
        ]
        name = f"{entry.chapter}: {entry.name}"
        yield statistics.median(right), max(wrong, default=0.0), name


def write_notebooks(folder: Path, count: int) -> list[Path]:
    """Write notebooks whose answers are right, each with a name in it."""
    made = [
        classroom.make_teacher_notebook(path)
        for path in sorted(classroom.CHAPTERS.glob("[0-9][0-9]_*.md"))
        if classroom.read_exercises(path)[1]
    ]
    paths = []
    for number, notebook in enumerate(islice(cycle(made), count)):
        notebook.cells[0].source += f"\n\nStudent {number}"
        paths.append(folder / f"{number:03}.ipynb")
        nbformat.write(notebook, paths[-1])
    return paths


def time_grading(paths: list[Path], workers: int) -> str:
    """Grade all; return how long it took, and how many got every point."""
    task = batch.make_task(0, Limits())
    found = {}
    took = time_call(
        lambda: found.update(batch.grade_in_pool(paths, workers, task))
    )
    whole = sum(
        not result["error"] and got == most
        for result in found.values()
        for got, most in [report.count_points(result)]
    )
    return (
        f"{workers} at a time: {took:.0f} s, {took / len(paths):.2f} s a "
        f"notebook; {whole} of {len(found)} with every point"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Print the table of checks, slowest first, and the time of a class."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--notebooks", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    with (
        hold_cores(os.cpu_count() or 1),
        tempfile.TemporaryDirectory() as folder,
    ):
        table = sorted(time_checks(), reverse=True)
        print("seconds right, slowest wrong: exercise")
        for right, wrong, name in table:
            print(f"{right:13.2f}  {wrong:12.2f}: {name}")
        middle = statistics.median(right for right, _, _ in table)
        print(f"the median of the right answers: {middle:.2f} s")
        paths = write_notebooks(Path(folder), options.notebooks)
        for workers in options.workers if paths else ():
            print(time_grading(paths, workers), flush=True)


if __name__ == "__main__":
    main()
