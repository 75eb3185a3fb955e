"""What grading takes: each exercise's check, and a class of notebooks.

`python -m workshop.book.measure_grading [--notebooks N] [--workers 1 2]` waits
until no recorded run uses the machine, then times. On a machine that is busy,
`--busy` leaves out the waiting and the table of checks; there, only the
processor time of all processes that grade can be compared.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import nbformat
import torch

from attnbook.grade import batch, report
from attnbook.grade.process_limits import Limits
from workshop.book import classroom
from workshop.book.catalogue import list_entries
from workshop.experiments.machine import hold_cores

CLASS = 1000  # notebooks, for which the time is extrapolated


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


def read_processor_time() -> float:
    """Return the processor time of this process and of those that ended."""
    used = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(x.ru_utime + x.ru_stime for x in used)


@dataclass
class Timing:
    """What grading took: seconds, and how many notebooks got every point."""

    notebooks: int
    clock: float
    processor: float
    whole: int


def time_grading(paths: list[Path], workers: int) -> Timing:
    """Grade all notebooks and return what it took."""
    task = batch.make_task(0, Limits())
    found: report.Results = {}
    before = read_processor_time()
    took = time_call(lambda: found.update(batch.grade_in_pool(paths, workers, task)))
    whole = sum(
        not result["error"] and got == most
        for result in found.values()
        for got, most in [report.count_points(result)]
    )
    used = read_processor_time() - before
    return Timing(len(paths), took, used, whole)


def extrapolate(few: Timing, many: Timing, count: int = CLASS) -> float:
    """Return the processor time of a class, from two numbers of notebooks.

    What every run takes, whatever the number, is counted once.
    """
    each = (many.processor - few.processor) / (many.notebooks - few.notebooks)
    return many.processor + each * (count - many.notebooks)


def write_timing(timing: Timing, workers: int) -> str:
    """Return a line on what grading took."""
    return (
        f"{timing.notebooks} notebooks, {workers} at a time: "
        f"{timing.clock:.0f} s, {timing.clock / timing.notebooks:.2f} s a "
        f"notebook; {timing.processor:.0f} s of processors; "
        f"{timing.whole} with every point"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Print the table of checks, and the time of a class."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--notebooks", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    cores = nullcontext() if options.busy else hold_cores(os.cpu_count() or 1)
    with cores, tempfile.TemporaryDirectory() as folder:
        if not options.busy:
            print_checks()
        paths = write_notebooks(Path(folder), options.notebooks)
        for workers in options.workers if paths else ():
            print_grading(paths, workers)


def print_checks() -> None:
    """Print what every check takes, slowest first."""
    table = sorted(time_checks(), reverse=True)
    print("seconds right, slowest wrong: exercise")
    for right, wrong, name in table:
        print(f"{right:13.2f}  {wrong:12.2f}: {name}")
    middle = statistics.median(right for right, _, _ in table)
    print(f"the median of the right answers: {middle:.2f} s")


def print_grading(paths: list[Path], workers: int) -> None:
    """Print what a class takes, and what a larger one would."""
    # A fifth of them, with every chapter as often as all of them have it.
    few = time_grading(paths[::5], workers)
    many = time_grading(paths, workers)
    for timing in (few, many):
        print(write_timing(timing, workers), flush=True)
    if len(paths) > few.notebooks:
        seconds = extrapolate(few, many)
        print(
            f"{CLASS} notebooks would take {seconds / 60:.0f} minutes of one processor"
        )


if __name__ == "__main__":
    main()
