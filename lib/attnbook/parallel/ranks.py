"""Starting ranks from a notebook or a script, and ending them whatever happens.

Each rank is a fresh Python process: nothing is forked, so no lock or thread is
copied, and a script needs no `if __name__ == "__main__"`. Functions and results
travel by cloudpickle, so that a function may be defined in a notebook's cell.

Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cloudpickle

from attnbook.parallel.groups import Board, ThreadGroup

LIMIT = 60.0  # seconds for a call
START_LIMIT = 120.0  # seconds until all ranks have imported PyTorch and met
GRACE = 1.0  # seconds in which the others can report after a rank has failed
POLL = 0.002
MODULE = "attnbook.parallel.rank_process"


class RankError(RuntimeError):
    """A rank raised an error, left, or did not finish in time.

    Its notes have the traceback of that rank.
    """


class Report(NamedTuple):
    """What a rank reports of a call: its result, or the error that it raised."""

    result: object = None
    printed: str = ""
    error: str | None = None
    traceback: str = ""
    moment: float = 0.0
    follows: bool = False  # the error can only be due to another rank's


class Ranks:
    """P processes that run one function after another.

    They start at the first call, which takes seconds, and stay until `close`, a
    failure, or the end of this process. After a failure the next call starts new
    ones.

    Args:
        size: P.
        limit: seconds after which a call is ended.
    """

    def __init__(self, size: int, limit: float | int = LIMIT):
        require_ranks(size, limit)
        self.size, self.limit = size, limit
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, function: Callable, *args: object) -> list:
        """Return function(group, *args) of each rank, in the order of the ranks.

        What ranks print is printed here, after the rank's number.

        Raises:
            RankError: if a rank raises an error, leaves, or does not finish in
                time; all ranks have been ended then.
        """
        call = cloudpickle.dumps((function, args))
        if not self._processes:
            self._start()
        reports = self._finish(call, self.limit)
        for rank, report in enumerate(reports):
            for line in report.printed.splitlines():
                print(f"[rank {rank}] {line}")
        return [report.result for report in reports]

    def close(self) -> None:
        """End the ranks."""
        if self._processes:
            self._end()
            self._processes = []

    def _start(self) -> None:
        folder = tempfile.TemporaryDirectory(
            prefix="ranks-", ignore_cleanup_errors=True
        )
        self._folder, self._calls = Path(folder.name), 0
        timeout = max(self.limit, START_LIMIT) + 2 * GRACE
        for rank in range(self.size):
            words = [rank, self.size, folder.name, timeout]
            with (self._folder / f"{rank}.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", MODULE, *map(str, words)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=make_environment(),
                    # Ctrl-C is for this process, which then ends the ranks.
                    start_new_session=True,
                )
            self._processes.append(process)
        self._end = weakref.finalize(self, end_processes, [*self._processes], folder)
        self._finish(cloudpickle.dumps((id, ())), START_LIMIT)  # all have met

    def _finish(self, call: bytes, limit: float) -> list[Report]:
        """Send a call to all ranks and return what they report."""
        self._calls += 1
        try:
            for process in self._processes:
                with contextlib.suppress(BrokenPipeError):  # it has left
                    pickle.dump((self._calls, call), process.stdin)
                    process.stdin.flush()
            return self._wait(limit)
        except BaseException:
            for process in self._processes:
                process.kill()
            self.close()
            raise

    def _wait(self, limit: float) -> list[Report]:
        reports: dict[int, Report] = {}
        end = time.monotonic() + limit
        while len(reports) < self.size and time.monotonic() < end:
            time.sleep(POLL)
            for rank, process in enumerate(self._processes):
                code = process.poll()  # before looking for its last report
                path = self._folder / f"{rank}-{self._calls}.pickle"
                if rank not in reports and path.exists():
                    reports[rank] = pickle.loads(path.read_bytes())
                    path.unlink()
                elif rank not in reports and code is not None:
                    left = f"left (exit code {code}) before it returned a result"
                    log = (self._folder / f"{rank}.log").read_text("utf8", "replace")
                    reports[rank] = Report(error=left, traceback=log)
                if rank in reports and reports[rank].error:
                    end = min(end, time.monotonic() + GRACE)
        return collect_reports(reports, self.size, limit)


def run_on_ranks(
    function: Callable, size: int, *args: object, limit: float | int = LIMIT
) -> list:
    """Return function(group, *args) of each of P new processes; see `Ranks`.

    The group's messages go through gloo, on this machine only.
    """
    with Ranks(size, limit) as ranks:
        return ranks.run(function, *args)


def run_in_threads(
    function: Callable, size: int, *args: object, limit: float | int = LIMIT
) -> list:
    """Return function(group, *args) of each of P threads of this process.

    The threads exchange tensors and count bytes as processes do. They share
    all other memory, the random numbers included. Arguments and errors are those
    of `run_on_ranks`, but a thread that does not end is left behind.
    """
    require_ranks(size, limit)
    board, reports = Board(size, limit), {}

    def work(rank: int) -> None:
        try:
            reports[rank] = Report(function(ThreadGroup(rank, board), *args))
        except Exception as error:
            reports[rank] = report_error(error)

    threads = [
        threading.Thread(target=work, args=[rank], daemon=True) for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    while len(reports) < size and time.monotonic() < end:
        time.sleep(POLL / 4)
        if any(report.error for report in [*reports.values()]):
            end = min(end, time.monotonic() + GRACE / 4)
    board.abort()
    reports = {rank: report for rank, report in reports.items() if not report.follows}
    return [report.result for report in collect_reports(reports, size, limit)]


def require_ranks(size: int, limit: float) -> None:
    """Raise ValueError if there is no rank, or no time."""
    if size < 1 or limit <= 0:
        raise ValueError(
            f"at least 1 rank and more than 0 seconds are needed, but size is {size} "
            f"and limit {limit}"
        )


def make_environment() -> dict[str, str]:
    """Return a rank's variables: its modules are found where ours are."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "OMP_NUM_THREADS": "1",
    }


def end_processes(
    processes: list[subprocess.Popen], folder: tempfile.TemporaryDirectory
) -> None:
    """End ranks: each does so when its input closes, or is killed after a second."""
    for process in processes:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for process in processes:
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    folder.cleanup()


def report_error(error: Exception) -> Report:
    """Return the report of an error that a rank raised."""
    text = " ".join(str(error).split())
    return Report(
        error=f"raised {type(error).__name__}: {text}",
        traceback="".join(traceback.format_exception(error)),
        moment=time.time(),
        follows=isinstance(error, threading.BrokenBarrierError)
        or "onnection closed by peer" in text
        or "onnection reset by peer" in text,
    )


def collect_reports(
    reports: dict[int, Report], size: int, limit: float
) -> list[Report]:
    """Return the reports of all ranks, or raise the error that came first."""
    failed = [rank for rank, report in reports.items() if report.error]
    if failed:
        first = min(failed, key=lambda r: (reports[r].follows, reports[r].moment))
        report = reports[first]
        alike = sum(other.error == report.error for other in reports.values())
        which = f"each of the {size} ranks" if alike == size > 1 else f"rank {first}"
        error = RankError(f"{which} {report.error}")
        error.add_note(f"On rank {first} of {size}:\n{report.traceback}")
        raise error
    if len(reports) < size:
        late = ", ".join(str(rank) for rank in range(size) if rank not in reports)
        done = ", ".join(map(str, sorted(reports)))
        why = f"; rank {done} had returned and sends nothing more" if done else ""
        raise RankError(f"rank {late} had not finished after {limit:g} s{why}")
    return [reports[rank] for rank in range(size)]
