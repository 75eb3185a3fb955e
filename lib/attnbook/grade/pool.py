"""Grading of notebooks, each in a process of its own: in parallel, resumable.

This process does not import PyTorch: those that grade fork from a server that
has imported it once.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import forkserver
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from attnbook import __version__
from attnbook.grade import sandbox
from attnbook.grade.sandbox import Limits

LARGEST = 64 * 2**20  # bytes of a notebook
STARTING = 120.0  # seconds in which the server imports PyTorch
SERVER = threading.Lock()
FAULT = "the grader failed, not the notebook"
DAEMON = (
    "grading starts processes, and a daemonic process may not; in Dask, set the "
    'option "distributed.worker.daemon" to False'
)


def grade_notebook(
    notebook: str | Path | bytes,
    exercises: Iterable[str] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
) -> dict:
    """Return a notebook's points and notes, with the verdict of each exercise.

    It starts a process of its own and can be called in several threads.

    Args:
        notebook: a path, or what the file holds.
        exercises: the names of those to grade, `check_x` or `chapter.check_x`;
            without them, all of each chapter whose checks the notebook imports.
        seed: from it, the second inputs of every exercise are drawn.
        limits: of the processes that run the notebook.

    Returns:
        `error`: None, or why it was not graded; `notes`; and of each check in
        `exercises` `points`, `of`, `verdict` and `mistake`. Where Triton is missing, a
        kernel counts nothing: its `points` are None, of 0.

    Raises:
        ValueError: if there is no exercise of a name.
        RuntimeError: if this process may not start others.
    """
    limits = limits or Limits()
    try:
        raw = notebook if isinstance(notebook, bytes) else read_bytes(Path(notebook))
    except OSError as error:
        return make_failure(f"it cannot be read: {error.strerror}")
    except ValueError as error:
        return make_failure(str(error))
    server = get_server()
    folder = tempfile.mkdtemp(prefix="attnbook-")
    ours, theirs = Pipe(duplex=False)
    chosen = None if exercises is None else list(exercises)
    given = theirs, raw, chosen, seed, limits, folder
    process = server.Process(target=judge_notebook, args=given)
    process.start()
    theirs.close()
    try:
        most = 3 * (limits.whole + limits.answer + limits.grace) + STARTING
        if not ours.poll(most * sandbox.measure_load()):
            return make_failure(f"it was stopped after {most:.0f} seconds")
        found = json.loads(ours.recv_bytes())
    except (EOFError, OSError) as error:
        return make_failure(f"{FAULT}: {error!r}")
    finally:
        process.kill()
        process.join()
        ours.close()
        sandbox.remove_folder(folder)
    if unknown := found.get("unknown"):
        raise ValueError(unknown)
    return found["result"]


def judge_notebook(answer: Connection, *given) -> None:
    """Send the result of a notebook; this runs in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends this process
    sandbox.close_files(answer.fileno())  # one would keep the server alive
    sandbox.call_kernel("prctl", sandbox.DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    from attnbook.grade.judge import Judge
    from attnbook.grade.notebook import UnknownError

    try:
        found = {"result": Judge(*given).grade()}
    except UnknownError as error:
        found = {"unknown": str(error)}
    except ValueError as error:
        found = {"result": make_failure(str(error))}
    except Exception as fault:  # one notebook must not cost the others
        found = {"result": make_failure(f"{FAULT}: {fault!r}")}
    answer.send_bytes(json.dumps(found).encode())


def make_failure(error: str) -> dict:
    """Return the result of a notebook that could not be graded."""
    return {"error": error[:300], "notes": [], "exercises": {}}


def read_bytes(path: Path) -> bytes:
    """Return what a file holds, unless reading it might never end."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is not a regular file")
        if about.st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST / 2**20:.0f} MB")
        with open(number, "rb", closefd=False) as file:
            return file.read(LARGEST)
    finally:
        os.close(number)


def get_server() -> multiprocessing.context.BaseContext:
    """Return the context of new processes, whose server runs without passwords."""
    if multiprocessing.current_process().daemon:
        raise RuntimeError(DAEMON)
    context = multiprocessing.get_context("forkserver")
    with SERVER:
        context.set_forkserver_preload(["attnbook.grade.preload"])
        before = dict(os.environ)
        try:
            sandbox.clear_environment()
            forkserver.ensure_running()
        finally:
            os.environ.clear()
            os.environ.update(before)
    return context


class Journal:
    """A file with one result a line, if there is a path; an interrupted run resumes."""

    def __init__(self, path: Path | None, *about):
        self.path, self.about = path, repr((__version__, *about))
        self.known: dict[str, dict] = {}
        if path and path.exists():
            for line in path.read_text("utf8").splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    key, result = json.loads(line)  # the last line may be cut off
                    self.known[key] = result

    def key(self, path: Path) -> str:
        """Return a name for a notebook's content, graded in this way."""
        try:
            content = read_bytes(path)
        except (OSError, ValueError):
            content = str(path).encode("utf8", "surrogateescape")
        return hashlib.sha256(self.about.encode() + content).hexdigest()

    def keep(self, key: str, result: dict) -> None:
        """Append a result to the file."""
        if self.path:
            with self.path.open("a", encoding="utf8") as file:
                file.write(f"\n{json.dumps([key, result])}\n")


def grade_all(
    paths: list[Path], journal: Journal, grade: Callable[[Path], dict], workers: int
) -> Iterator[tuple[Path, dict]]:
    """Yield every notebook with its result, in order of completion."""
    keys = {path: journal.key(path) for path in paths}
    known = {path: journal.known.get(keys[path]) for path in paths}
    yield from ((path, result) for path, result in known.items() if result)
    pool = ThreadPoolExecutor(max(1, workers))
    jobs = {pool.submit(grade, path): path for path in paths if not known[path]}
    try:
        for job in as_completed(jobs):
            path = jobs[job]
            journal.keep(keys[path], job.result())
            yield path, job.result()
    finally:  # when interrupted, do not wait for notebooks that are left
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(job.done() for job in jobs):
            for process in multiprocessing.active_children():
                process.kill()
            time.sleep(0.01)
