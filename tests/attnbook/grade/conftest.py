"""Grading a notebook made of cells."""

import pytest

from attnbook.grade.notebook_grader import grade
from attnbook.grade.process_limits import Limits
from attnbook.grade.sandbox import open_sandbox
from notebooks import LIMITS, write_notebook


@pytest.fixture
def graded(tmp_path):
    """Grade a notebook of these cells."""

    def run(*cells, limits=LIMITS):
        path = write_notebook(tmp_path / "submission.ipynb", *cells)
        return grade(path, limits=limits)

    return run


@pytest.fixture(scope="module")
def limits_set():
    """Return the limits that are in force on this platform."""
    with open_sandbox(Limits()) as opened:
        return opened.limits_set
