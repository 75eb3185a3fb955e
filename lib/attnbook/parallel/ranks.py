"""Starting ranks from a notebook or a script, and ending them whatever happens.

Each rank is a fresh Python process: nothing is forked, so no lock or thread is
copied, and a script needs no `if __name__ == "__main__"`. Messages go through
gloo, on this machine only. Functions and results travel by cloudpickle, so that a
function may be defined in a notebook's cell.

Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

import contextlib
import io
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import torch
import torch.distributed as dist

from attnbook.parallel.groups import Board, DistributedGroup, Group

LIMIT = 60.0  # seconds for a call
START_LIMIT = 120.0  # seconds until all ranks have imported PyTorch and met
GRACE = 1.0  # seconds in which the others can report after a rank has failed
POLL = 0.002
CODE = "from attnbook.parallel.ranks import serve; serve()"


class RankError(RuntimeError):
    """A rank raised an error, left, or was late; the notes have its traceback."""


class Report(NamedTuple):
    """What a rank reports of a call: its result, or what went wrong."""

    result: object = None
    printed: str = ""
    error: str | None = None
    traceback: str = ""


class Ranks(contextlib.AbstractContextManager):
    """P processes that run one function after another, each for `limit` seconds.

    They start at the first call, which takes seconds, and anew at the next one
    after a failure. They end with `close` or this process.
    """

    def __init__(self, size: int, limit: float | int = LIMIT):
        self.size, self.limit = size, limit
        self._processes: list[subprocess.Popen] = []

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, function: Callable, *args: object) -> list:
        """Return function(group, *args) of each rank, in the order of the ranks.

        What ranks print is printed here, after the rank's number.

        Raises:
            RankError: if a rank failed; all ranks have been ended then.
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
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
        if self._processes:
            self._folder.cleanup()
        self._processes = []

    def _start(self) -> None:
        # A rank also ends when its input does: with this process, or this object.
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._calls = 0
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
            "OMP_NUM_THREADS": "1",
        }
        timeout = max(self.limit, START_LIMIT) + 2 * GRACE
        for rank in range(self.size):
            words = [rank, self.size, self._folder.name, timeout]
            with Path(self._folder.name, f"{rank}.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-c", CODE, *map(str, words)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    # Ctrl-C is for this process, which then ends the ranks.
                    start_new_session=True,
                )
            self._processes.append(process)
        self._finish(cloudpickle.dumps((id, ())), START_LIMIT)  # all have met

    def _finish(self, call: bytes, limit: float | int) -> list[Report]:
        """Send a call to all ranks and return what they report."""
        self._calls += 1
        try:
            for process in self._processes:
                with contextlib.suppress(BrokenPipeError):  # it has left
                    pickle.dump((self._calls, call), process.stdin)
                    process.stdin.flush()
            return wait_for_reports(self._read_report, self.size, limit, GRACE)
        except BaseException:
            self.close()
            raise

    def _read_report(self, rank: int) -> Report | None:
        code = self._processes[rank].poll()  # before looking for its last report
        path = Path(self._folder.name, f"{rank}-{self._calls}.pickle")
        if path.exists():
            report = pickle.loads(path.read_bytes())
            path.unlink()
            return report
        if code is None:
            return None
        log = path.with_name(f"{rank}.log").read_text("utf8", "replace")
        left = f"left (exit code {code}) before it returned a result"
        return Report(error=left, traceback=log)


def run_in_threads(
    function: Callable, size: int, *args: object, limit: float | int = LIMIT
) -> list:
    """Return function(group, *args) of each of P threads of this process.

    They exchange tensors, count bytes and raise errors as `Ranks` do. They share
    all other memory, random numbers included; one that does not end is left behind.
    """
    board, reports = Board(size, limit), {}

    def work(rank: int) -> None:
        try:
            reports[rank] = Report(function(Group(rank, board), *args))
        except threading.BrokenBarrierError:
            return  # another thread left or ran out of time
        except Exception as error:
            reports[rank] = report_error(error)

    for rank in range(size):
        threading.Thread(target=work, args=[rank], daemon=True).start()
    try:
        found = wait_for_reports(reports.get, size, limit, GRACE / 4)
    finally:
        board.barrier.abort()
    return [report.result for report in found]


def report_error(error: Exception) -> Report:
    """Return the report of an error that a rank raised."""
    text = " ".join(str(error).split())
    return Report(
        error=f"raised {type(error).__name__}: {text}",
        traceback="".join(traceback.format_exception(error)),
    )


def wait_for_reports(
    read: Callable[[int], Report | None],
    size: int,
    limit: float | int,
    grace: float | int,
) -> list[Report]:
    """Return the reports of all ranks, or raise the first error as a RankError."""
    reports: dict[int, Report] = {}
    end = time.monotonic() + limit
    while len(reports) < size and time.monotonic() < end:
        time.sleep(POLL)
        for rank in set(range(size)) - {*reports}:
            if report := read(rank):
                reports[rank] = report
                if report.error:
                    end = min(end, time.monotonic() + grace)
    failed = [rank for rank in sorted(reports) if reports[rank].error]
    if failed:
        # One that left comes first: the others lost their connection to it.
        first = min(failed, key=lambda rank: not reports[rank].error.startswith("left"))
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


def read_calls(calls: queue.SimpleQueue) -> None:
    """Put what arrives into the queue; end this process when nothing can arrive."""
    while True:
        try:
            calls.put(pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)


def serve() -> None:
    """Be a rank: join the group, run what arrives, store what it returns."""
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    calls: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=read_calls, args=[calls], daemon=True).start()
    torch.set_num_threads(1)
    store, limit = (folder / "store").as_uri(), timedelta(seconds=float(sys.argv[4]))
    dist.init_process_group("gloo", store, rank=rank, world_size=size, timeout=limit)
    group = DistributedGroup()
    while True:
        number, call = calls.get()
        group.reset()
        printed = io.StringIO()
        try:
            function, args = pickle.loads(call)
            with contextlib.redirect_stdout(printed):
                result = function(group, *args)
            report = cloudpickle.dumps(Report(result, printed.getvalue()))
        except Exception as error:
            report = pickle.dumps(report_error(error))
        part = folder / f"{rank}-{number}.part"
        part.write_bytes(report)
        part.replace(part.with_suffix(".pickle"))
