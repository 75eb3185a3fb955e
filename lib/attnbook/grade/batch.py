"""Grading of many notebooks: in parallel and resumable."""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path

from attnbook import __version__
from attnbook.grade import files
from attnbook.grade.process_limits import Limits

Grade = Callable[[Path], dict]
# Yields every notebook with its result, in order of completion.
Run = Callable[[list[Path]], Iterator[tuple[Path, dict]]]


def grade_one(path: Path | bytes, seed: int, limits: Limits) -> dict:
    """Grade one notebook; an error of the grader becomes a result.

    Args:
        path: the notebook, or what its file holds.
        seed: from it, the second inputs of every exercise are drawn.
        limits: of the process that runs the notebook.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MPLBACKEND", "Agg")
    import torch

    from attnbook.grade.notebook_grader import grade

    torch.set_num_threads(1)
    try:
        return grade(path, seed, limits)
    except Exception as fault:  # one notebook must not cost the others
        return make_failure(fault)


def make_failure(fault: BaseException) -> dict:
    """Return the result of a notebook that the grader could not grade."""
    message = f"the grader failed, not the notebook: {fault!r}"[:300]
    return {"error": message, "notes": [], "exercises": {}}


class Journal:
    """A file with one result per line, so that an interrupted run resumes.

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
            content = files.read_bytes(path)
        except (OSError, ValueError):
            content = str(path).encode()
        return hashlib.sha256(self.about.encode() + content).hexdigest()

    def keep(self, key: str, result: dict) -> None:
        """Append a result to the file."""
        if self.path:
            with self.path.open("a", encoding="utf8") as file:
                file.write(f"\n{json.dumps([key, result])}\n")

    def remove(self) -> None:
        """Remove the file when all notebooks are graded."""
        if self.path:
            self.path.unlink(missing_ok=True)


def grade_all(
    paths: list[Path], journal: Journal, run: Run
) -> Iterator[tuple[Path, dict]]:
    """Yield every notebook with its result, in order of completion.

    Args:
        paths: the notebooks.
        journal: knows results of an interrupted run; each new one is kept.
        run: grades the notebooks that are left.
    """
    keys = {path: journal.key(path) for path in paths}
    left = []
    for path in paths:
        if keys[path] in journal.known:
            yield path, journal.known[keys[path]]
        else:
            left.append(path)
    for path, result in run(left):
        journal.keep(keys[path], result)
        yield path, result


def grade_in_pool(
    paths: list[Path], workers: int, task: Grade
) -> Iterator[tuple[Path, dict]]:
    """Grade in a pool; if a worker is killed, grade the rest one by one."""
    done: set[Path] = set()
    executor = start_pool(workers)
    try:
        jobs = {executor.submit(task, path): path for path in paths}
        for job in as_completed(jobs):
            result = job.result()
            done.add(jobs[job])
            yield jobs[job], result
    except BrokenProcessPool:
        for path in (p for p in paths if p not in done):
            yield path, grade_alone(path, task)
    finally:  # when interrupted, do not wait for notebooks that are left
        executor.shutdown(cancel_futures=True)


def grade_alone(path: Path, task: Grade, times: int = 2) -> dict:
    """Grade one notebook in its own pool; retry once if that is killed."""
    try:
        with start_pool(1) as executor:
            return executor.submit(task, path).result()
    except BrokenProcessPool as fault:
        if times > 1:  # it may have been killed by chance, such as lack of memory
            return grade_alone(path, task, times - 1)
        return make_failure(fault)


def start_pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool whose processes are spawned and do not outlive this one."""
    return ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=watch_parent
    )


def watch_parent() -> None:
    """End this process of a pool when the process that started it is killed.

    It would wait for work for ever, because it can also send to its own queue.
    """

    def watch():
        if parent := parent_process():
            parent.join()
            while True:  # the pool takes the exit of a task for its result
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(2.0)

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    threading.Thread(target=watch, daemon=True).start()


def make_task(seed: int, limits: Limits) -> Grade:
    """Return the function with which a worker grades a notebook."""
    return partial(grade_one, seed=seed, limits=limits)
