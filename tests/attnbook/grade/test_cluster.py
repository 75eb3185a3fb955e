"""Grading on a cluster: what happens when tasks, workers or all of it fail.

The cluster is an executor that fails as a test says; `make test-cluster` grades
on a real one.
"""

import itertools
import os
import signal
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path

import pytest

from attnbook.grade import batch, cluster, cluster_worker, command
from attnbook.grade.process_limits import Limits
from notebooks import write_notebook
from sandbox_limits import GRADING

pytestmark = GRADING


class KilledWorkerError(Exception):
    """What Dask raises when several workers died with a task."""


class Executor:
    """A cluster that computes when it is waited for, or fails.

    Args:
        faults: for a notebook's text, the errors of its first attempts.
    """

    def __init__(self, **faults):
        self.faults = {name: iter(given) for name, given in faults.items()}
        self.sent, self.most, self.futures = [], 0, []

    def submit(self, task, raw, seed, limits, book):
        assert task is cluster_worker.grade_on_worker
        assert book == cluster_worker.describe_book()
        self.sent.append((raw.decode(), seed, limits))
        job = Future()
        self.futures.append(job)
        self.most = max(self.most, sum(not x.done() for x in self.futures))
        return job

    def count_threads(self):
        """Let the first job that is not done end; there are two workers."""
        for (name, *_), job in zip(self.sent, self.futures, strict=True):
            if not job.done():
                fault = next(self.faults.get(name, iter(())), None)
                if fault:
                    job.set_exception(fault)
                else:
                    job.set_result({"name": name})
                break
        return 2


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Do not wait: what this executor computes is done before."""
    monkeypatch.setattr(cluster, "POLL", 0.001)


@pytest.fixture
def paths(tmp_path):
    made = [tmp_path / f"{name}.ipynb" for name in "abcdefgh"]
    for path in made:
        path.write_text(path.stem)
    return made


def run(paths, executor, count_threads=None):
    return cluster.grade_on_cluster(
        paths, executor, count_threads or executor.count_threads, 5, Limits()
    )


def test_every_notebook_is_one_task_and_few_are_sent_ahead(paths):
    executor = Executor()
    found = dict(run(paths, executor))
    assert found == {path: {"name": path.stem} for path in paths}
    assert executor.sent == [(path.stem, 5, Limits()) for path in paths]
    assert 2 < executor.most <= 2 * cluster.AHEAD


def test_a_lost_task_is_sent_again(paths):
    executor = Executor(b=[KilledWorkerError()], c=[KilledWorkerError()] * 2)
    found = dict(run(paths, executor))
    assert found == {path: {"name": path.stem} for path in paths}
    sent = [name for name, *_ in executor.sent]
    assert (sent.count("a"), sent.count("b"), sent.count("c")) == (1, 2, 3)


def test_a_notebook_whose_workers_all_die_is_named_and_the_rest_graded(paths):
    executor = Executor(b=itertools.repeat(KilledWorkerError("4 workers")))
    found = dict(run(paths, executor))
    assert found.keys() == {*paths}
    assert "4 workers" in found[paths[1]]["error"]
    assert [name for name, *_ in executor.sent].count("b") == cluster.TIMES


def test_a_file_that_cannot_be_read_is_not_sent(paths, tmp_path):
    none = tmp_path / "none.ipynb"
    executor = Executor()
    found = dict(run([none, *paths], executor))
    assert found[none] == batch.grade_one(none, 5, Limits())
    assert len(executor.sent) == len(paths)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (CancelledError(), "connection to the scheduler is lost"),
        (cluster_worker.OtherBookError("code 1 and code 2"), "code 1 and"),
        (ModuleNotFoundError("No module named 'attnbook'"), "every worker"),
    ],
)
def test_a_lost_cluster_loses_no_result(paths, tmp_path, fault, message):
    kept = tmp_path / "kept"
    executor = Executor(d=[fault])
    journal = batch.Journal(kept, 0)
    with pytest.raises(cluster.ClusterError, match=message):
        list(batch.grade_all(paths, journal, partial(run, executor=executor)))
    again = Executor()
    known = batch.Journal(kept, 0)
    found = dict(batch.grade_all(paths, known, partial(run, executor=again)))
    assert found == {path: {"name": path.stem} for path in paths}
    assert [name for name, *_ in again.sent] == [*"defgh"]


def test_grading_ends_with_a_message_if_there_is_no_worker(paths, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.05)
    executor = Executor()
    with pytest.raises(cluster.ClusterError, match="no worker"):
        list(run(paths, executor, lambda: 0))
    assert all(job.cancelled() for job in executor.futures)


def test_grading_ends_with_a_message_if_the_scheduler_is_gone(paths):
    def count_threads():
        raise OSError("connection refused")

    with pytest.raises(cluster.ClusterError, match="connection refused"):
        list(run(paths, Executor(), count_threads))


def test_without_dask_the_option_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    path = write_notebook(tmp_path / "a.ipynb", "1")
    assert command.main([str(path), "--scheduler", "tcp://x:1"]) == 1
    assert "pip install '.[cluster]'" in capsys.readouterr().err


# The process of a worker, which here only tells what it was asked.


@pytest.fixture
def own(monkeypatch):
    """Let this thread's process answer at once, and end it after the test."""
    begin = cluster_worker.BEGIN.replace(
        "cluster_worker.serve()",
        "cluster_worker.batch.grade_one = lambda *x: {'given': repr(x)}\n"
        "cluster_worker.serve()",
    )
    monkeypatch.setattr(cluster_worker, "BEGIN", begin)
    yield cluster_worker.OWN
    if hasattr(cluster_worker.OWN, "process"):
        cluster_worker.OWN.process.close()
        del cluster_worker.OWN.process


def grade(raw=b"x", book=None):
    book = book or cluster_worker.describe_book()
    return cluster_worker.grade_on_worker(raw, 3, Limits(), book)


def test_a_worker_keeps_its_process_and_replaces_one_that_was_killed(own):
    expected = {"given": repr((b"x", 3, Limits()))}
    assert grade() == expected
    first = own.process.process.pid
    assert grade() == expected
    assert own.process.process.pid == first
    os.kill(first, signal.SIGKILL)
    assert grade() == expected
    assert own.process.process.pid != first


def test_a_worker_with_another_book_is_refused(own):
    with pytest.raises(cluster_worker.OtherBookError, match="code 0"):
        grade(book="code 0")


def test_the_process_of_a_worker_ends_with_it(own):
    grade()
    process = own.process.process
    process.stdin.close()
    assert process.wait(20)
    del own.process


def test_a_book_is_described_by_its_code_wherever_it_is(tmp_path, monkeypatch):
    for name in ("one", "other", "changed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("x = 1\n")
    (tmp_path / "changed" / "a.py").write_text("x = 2\n")
    found = []
    for name in ("one", "other", "changed"):
        monkeypatch.setattr(cluster_worker, "PLACE", Path(tmp_path / name))
        found.append(cluster_worker.describe_book.__wrapped__())
    assert found[0] == found[1] != found[2]
