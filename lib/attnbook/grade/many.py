"""Many notebooks: in parallel, resumed where it stopped, none lost.

Chapter: all of them
Source: none
Axes: none
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from attnbook import __version__
from attnbook.grade.fences import Limits

Grade = Callable[[Path], dict]


def one(path: Path, seed: int, limits: Limits) -> dict:
    """Grade one notebook; a fault of the grader's is a result, too."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MPLBACKEND", "Agg")
    import torch

    from attnbook.grade.outside import grade

    torch.set_num_threads(1)
    try:
        return grade(path, seed, limits)
    except Exception as fault:  # one notebook must not cost the others
        return failed(fault)


def failed(fault: BaseException) -> dict:
    """Return the result of a notebook that the grader could not grade."""
    said = f"the grader failed, not the notebook: {fault!r}"[:300]
    return {"error": said, "notes": [], "exercises": {}}


class Journal:
    """Results as they come, one a line, so that an interruption costs little.

    Args:
        path: the file; without one, nothing is kept.
        about: what a result depends on, beside the notebook itself.
    """

    def __init__(self, path: Path | None, *about):
        self.path = path
        self.about = repr((__version__, *about))
        self.known: dict[str, dict] = {}
        if path and path.exists():
            for line in path.read_text("utf8").splitlines():
                try:
                    key, result = json.loads(line)
                except (ValueError, TypeError):
                    continue  # the line that was being written
                self.known[key] = result

    def key(self, path: Path) -> str:
        """Return a name for a notebook's content, graded in this way."""
        try:
            content = path.read_bytes()
        except OSError:
            content = str(path).encode()
        return hashlib.sha256(self.about.encode() + content).hexdigest()

    def keep(self, key: str, result: dict) -> None:
        """Write a result down."""
        if self.path:
            with self.path.open("a", encoding="utf8") as file:
                file.write(f"\n{json.dumps([key, result])}\n")

    def done(self) -> None:
        """Remove the file: nothing is left to be resumed."""
        if self.path:
            self.path.unlink(missing_ok=True)


def results(
    paths: list[Path], journal: Journal, workers: int, task: Grade
) -> Iterator[tuple[Path, dict]]:
    """Yield every notebook with its result, as they come."""
    keys = {path: journal.key(path) for path in paths}
    left = []
    for path in paths:
        if keys[path] in journal.known:
            yield path, journal.known[keys[path]]
        else:
            left.append(path)
    for path, result in finished(left, workers, task):
        journal.keep(keys[path], result)
        yield path, result


def finished(
    paths: list[Path], workers: int, task: Grade
) -> Iterator[tuple[Path, dict]]:
    """Grade in a pool; if a worker is killed, go on with one at a time."""
    done: set[Path] = set()
    try:
        with pool(workers) as workshop:
            jobs = {workshop.submit(task, path): path for path in paths}
            for job in as_completed(jobs):
                result = job.result()
                done.add(jobs[job])
                yield jobs[job], result
    except BrokenProcessPool:
        for path in (p for p in paths if p not in done):
            yield path, alone(path, task)


def alone(path: Path, task: Grade, times: int = 2) -> dict:
    """Grade one notebook in a pool of its own, again if that is killed."""
    try:
        with pool(1) as workshop:
            return workshop.submit(task, path).result()
    except BrokenProcessPool as fault:
        if times > 1:  # what killed it may have been the machine's, once
            return alone(path, task, times - 1)
        return failed(fault)


def pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool whose processes start afresh."""
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def task(seed: int, limits: Limits) -> Grade:
    """Return what a worker does with a notebook."""
    return partial(one, seed=seed, limits=limits)
