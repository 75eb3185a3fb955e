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

from attnbook.parallel.groups import Board, Group, ThreadGroup

LIMIT = 60.0  # seconds for a call
START_LIMIT = 120.0  # seconds until all ranks have imported PyTorch and met
GRACE = 1.0  # seconds in which the others can report after a rank has failed
POLL = 0.005


class RankError(RuntimeError):
    """A rank raised an error, left, or did not finish in time.

    Its notes are the ranks' own tracebacks.
    """


class Failure(NamedTuple):
    """What a rank reports of an error."""

    rank: int
    sentence: str
    traceback: str = ""
    moment: float = 0.0
    follows: bool = False  # it can only be the consequence of another rank's error


class Ranks:
    """P processes that run one function after another.

    They start at the first call, which takes seconds, and stay until `close`, a
    failure, or the end of this process. After a failure the next call starts new
    ones.

    Args:
        size: P.
        limit: seconds after which a call is ended.

    Raises:
        ValueError: if there is not at least one rank, or no time.
    """

    def __init__(self, size: int, limit: float = LIMIT):
        check_size(size, limit)
        self.size, self.limit = size, limit
        self._processes: list[subprocess.Popen] = []
        self._calls = 0

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
        return self._finish(call, self.limit, show=True)

    def close(self) -> None:
        """End the ranks."""
        if self._processes:
            self._end()
            self._processes = []

    def _start(self) -> None:
        module = "attnbook.parallel.rank_process"
        folder = tempfile.TemporaryDirectory(
            prefix="ranks-", ignore_cleanup_errors=True
        )
        self._folder, self._calls = Path(folder.name), 0
        self._seen = [0] * self.size
        timeout = max(self.limit, START_LIMIT) + 2 * GRACE
        for rank in range(self.size):
            words = [str(rank), str(self.size), folder.name, str(timeout)]
            with (self._folder / f"{rank}.log").open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", module, *words],
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=make_environment(),
                        # Ctrl-C is for this process, which then ends the ranks.
                        start_new_session=True,
                    )
                )
        self._end = weakref.finalize(self, end_processes, [*self._processes], folder)
        self._finish(cloudpickle.dumps((get_rank, ())), START_LIMIT, show=False)

    def _finish(self, call: bytes, limit: float, show: bool) -> list:
        """Send a call to all ranks and return their results."""
        self._calls += 1
        try:
            for process in self._processes:
                with contextlib.suppress(BrokenPipeError):  # it has left
                    pickle.dump((self._calls, call), process.stdin)
                    process.stdin.flush()
            try:
                return self._wait(limit)
            finally:
                self._read_output(show)
        except BaseException:
            for process in self._processes:
                process.kill()
            self.close()
            raise

    def _wait(self, limit: float) -> list:
        results, failures = {}, {}
        end, hurry = time.monotonic() + limit, False
        while True:
            for rank, process in enumerate(self._processes):
                if rank in results or rank in failures:
                    continue
                code = process.poll()  # before looking for its last report
                path = self._folder / f"{rank}-{self._calls}.pickle"
                if path.exists():
                    outcome = pickle.loads(path.read_bytes())
                    path.unlink()
                    into = failures if isinstance(outcome, Failure) else results
                    into[rank] = outcome
                elif code is not None:
                    sentence = f"left (exit code {code}) before it returned a result"
                    failures[rank] = Failure(rank, sentence)
            if len(results) == self.size:
                return [results[rank][0] for rank in range(self.size)]
            if failures and not hurry:
                hurry, end = True, time.monotonic() + GRACE
            late = time.monotonic() > end
            if failures and (late or len(results) + len(failures) == self.size):
                raise make_error(self.size, [*failures.values()])
            if late:
                raise make_late_error(self.size, limit, set(results))
            time.sleep(POLL)

    def _read_output(self, show: bool) -> None:
        for rank in range(self.size):
            text = (self._folder / f"{rank}.log").read_bytes()
            fresh = text[self._seen[rank] :].decode("utf8", "replace")
            self._seen[rank] = len(text)
            for line in fresh.splitlines() if show else ():
                print(f"[rank {rank}] {line}")


def run_on_ranks(
    function: Callable, size: int, *args: object, limit: float = LIMIT
) -> list:
    """Return function(group, *args) of each of P new processes.

    The group's messages go through gloo, on this machine only.

    Args:
        function: what each rank runs; its first argument is its `Group`.
        size: P.
        args: the others, the same for every rank.
        limit: seconds after which the ranks are ended.

    Raises:
        RankError: if a rank raises an error, leaves, or does not finish in time.
    """
    with Ranks(size, limit) as ranks:
        return ranks.run(function, *args)


def run_in_threads(
    function: Callable, size: int, *args: object, limit: float = LIMIT
) -> list:
    """Return function(group, *args) of each of P threads of this process.

    The threads exchange tensors and count bytes as processes do. They share
    all other memory, the random numbers included.

    Args:
        function, size, args: as in `run_on_ranks`.
        limit: seconds that a thread waits for the others.

    Raises:
        RankError: as there. A thread that does not end cannot be ended; it is
            left behind.
    """
    check_size(size, limit)
    board, results, failures = Board(size, limit), {}, {}

    def work(rank: int) -> None:
        try:
            results[rank] = function(ThreadGroup(rank, board), *args)
        except BaseException as error:
            failures[rank] = describe_error(rank, error)

    threads = [
        threading.Thread(target=work, args=[rank], daemon=True) for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
        if failures:  # the others may be about to raise the same
            end = min(end, time.monotonic() + GRACE / 4)
        time.sleep(POLL / 5)
    board.abort()
    if failures and any(not failure.follows for failure in failures.values()):
        raise make_error(size, [*failures.values()])
    if len(results) < size:
        raise make_late_error(size, limit, set(results))
    return [results[rank] for rank in range(size)]


def check_size(size: int, limit: float) -> None:
    """Raise ValueError if there is no rank, or no time."""
    if size < 1 or limit <= 0:
        raise ValueError(
            f"at least 1 rank and more than 0 seconds are needed, but size is {size} "
            f"and limit {limit}"
        )


def get_rank(group: Group) -> int:
    """Return the rank: a call that only shows that all of them have met."""
    return group.rank


def make_environment() -> dict[str, str]:
    """Return a rank's variables: its modules are found where ours are."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "GLOO_SOCKET_IFNAME": loopback,
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


def describe_error(rank: int, error: BaseException) -> Failure:
    """Return the report of an error that a rank raised."""
    text = " ".join(str(error).split())
    follows = isinstance(error, threading.BrokenBarrierError) or any(
        words in text for words in ("onnection closed by peer", "onnection reset by")
    )
    return Failure(
        rank,
        f"raised {type(error).__name__}: {text}",
        "".join(traceback.format_exception(error)),
        time.time(),
        follows,
    )


def make_error(size: int, failures: list[Failure]) -> RankError:
    """Return the error of the rank that failed first, or of all of them."""
    first = min(failures, key=lambda f: (f.follows, f.moment))
    alike = sum(f.sentence == first.sentence for f in failures) == size > 1
    which = f"each of the {size} ranks" if alike else f"rank {first.rank} of {size}"
    error = RankError(f"{which} {first.sentence}")
    if first.traceback:
        error.add_note(f"On rank {first.rank}:\n{first.traceback}")
    return error


def make_late_error(size: int, limit: float, done: set[int]) -> RankError:
    """Return the error of ranks that have not finished in time."""
    late, left = (
        ", ".join(str(rank) for rank in range(size) if (rank in done) is finished)
        for finished in (False, True)
    )
    reason = f"; rank {left} had returned and sends nothing more" if left else ""
    return RankError(
        f"rank {late} of {size} had not finished after {limit:g} s{reason}"
    )
