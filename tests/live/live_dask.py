"""Notebooks graded on a Dask cluster get what one machine gives them.

The lines are those of the teachers' page. `make lab` makes an environment for
this and runs it; `make test` has no part of it.
"""

import sys
from pathlib import Path

import dask
from distributed import Client, LocalCluster

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from attnbook.grade import grade_notebook
from notebooks import CHECK, RIGHT, WRONG, write_notebook


def test_two_workers_give_what_one_machine_gives(tmp_path):
    submissions = [
        write_notebook(tmp_path / f"{name}.ipynb", answer, CHECK)
        for name, answer in {"right": RIGHT, "wrong": WRONG}.items()
    ]
    # A worker that grades starts processes of its own.
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as two,
        Client(two) as client,
    ):
        notebooks = [path.read_bytes() for path in submissions]
        found = client.gather(client.map(grade_notebook, notebooks))
    assert found == [grade_notebook(path) for path in submissions]
    right, wrong = (sum(x["points"] for x in r["exercises"].values()) for r in found)
    assert right > wrong == 0
