"""Grading on a Dask cluster gives what one machine gives, whatever is lost.

`make test-cluster` makes an environment for this and runs it; `make test` has
no part of it.
"""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from distributed import Client, LocalCluster

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from attnbook.grade import batch, cluster, cluster_worker, command
from notebooks import ATTEND, CHECK, RIGHT, WRONG, write_notebook

ENDLESS = "while True: pass"
COUNT = 8


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Submissions that are right, wrong, endless, broken and missing."""
    folder = tmp_path_factory.mktemp("class")
    made = [
        write_notebook(folder / f"{n}.ipynb", f"n = {n}", (RIGHT, WRONG)[n % 2], CHECK)
        for n in range(COUNT)
    ]
    bad = write_notebook(
        folder / "endless.ipynb", WRONG, CHECK, ENDLESS, ATTEND.format("len")
    )
    away = write_notebook(
        folder / "writes.ipynb", "open('/tmp/attnbook', 'w')", RIGHT, CHECK
    )
    (folder / "broken.ipynb").write_text("{")
    return [*made, bad, away, folder / "broken.ipynb", folder / "none.ipynb"]


def grade(paths, folder, *words):
    """Grade by the command; return the three files."""
    folder.mkdir(exist_ok=True)
    out = [folder / f"points.{kind}" for kind in ("json", "csv", "html")]
    words = [*map(str, paths), "--seconds", "20", *words]
    for file in out:
        words += [f"--{file.suffix[1:]}", str(file)]
    assert command.main(words) == 0
    assert not list(folder.glob("*.unfinished"))
    return [file.read_text("utf8") for file in out]


@pytest.fixture(scope="module")
def expected(paths, tmp_path_factory):
    """What one process on this machine writes."""
    return grade(paths, tmp_path_factory.mktemp("here"), "--workers", "1")


@pytest.fixture
def workers():
    """A local cluster of two worker processes."""
    made = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with made:
        yield made


def find_graders():
    """Return the processes of workers that grade, by their numbers."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if "cluster_worker.serve" in " ".join(process.info["cmdline"] or [])
    }


def test_a_worker_that_is_killed_half_way_loses_nothing(
    workers, paths, expected, tmp_path, monkeypatch
):
    keep, done, before = batch.Journal.keep, [], find_graders()

    def keep_and_kill(self, key, result):
        keep(self, key, result)
        done.append(key)
        if len(done) == COUNT // 2:
            with Client(workers.scheduler_address) as client:
                number = min(client.run(os.getpid).values())
            os.kill(number, signal.SIGKILL)

    monkeypatch.setattr(batch.Journal, "keep", keep_and_kill)
    found = grade(paths, tmp_path / "out", "--scheduler", workers.scheduler_address)
    assert found == expected
    assert len(done) == len(paths)
    workers.close()
    ends = time.monotonic() + 30
    while (left := find_graders() - before) and time.monotonic() < ends:
        time.sleep(0.2)
    assert not left, "a process that grades has outlived its worker"


def test_an_interrupted_run_goes_on_with_its_shard(
    workers, paths, expected, tmp_path, monkeypatch
):
    address = workers.scheduler_address
    keep, done = batch.Journal.keep, []

    def keep_and_stop(self, key, result):
        keep(self, key, result)
        done.append(key)
        if len(done) == 3:
            raise KeyboardInterrupt

    files = [tmp_path / f"{k}.json" for k in (1, 2)]
    for k, file in enumerate(files, 1):
        words = [*map(str, paths), "--seconds", "20", "--scheduler", address]
        words += ["--shard", f"{k}/2", "--json", str(file)]
        done.clear()
        with monkeypatch.context() as patch:
            patch.setattr(batch.Journal, "keep", keep_and_stop)
            assert command.main(words) == command.INTERRUPTED
        kept = Path(f"{file}.unfinished").read_text()
        assert kept.count('"exercises"') == 3
        assert command.main(words) == 0
    merged = tmp_path / "all.json"
    words = ["--merge", *map(str, files), "--json", str(merged)]
    assert command.main(words) == 0
    assert merged.read_text("utf8") == expected[0]


def test_workers_with_other_code_are_refused(
    workers, paths, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(cluster, "describe_book", lambda: "code 0")
    words = [*map(str, paths[:1]), "--scheduler", workers.scheduler_address]
    assert command.main(words) == 1
    told = capsys.readouterr().err
    assert "code 0" in told and cluster_worker.describe_book() in told


def test_an_address_without_a_scheduler_is_named(paths, monkeypatch, capsys):
    monkeypatch.setattr(cluster, "CONNECT", 2.0)
    for address in ("tcp://127.0.0.1:1", "nonsense::7"):
        assert command.main([str(paths[0]), "--scheduler", address]) == 1
        assert address in capsys.readouterr().err
