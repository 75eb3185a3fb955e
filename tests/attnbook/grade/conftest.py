"""Grading a notebook made of cells."""

import pytest

from attnbook.grade.notebook_grader import grade
from notebooks import LIMITS, write_notebook


@pytest.fixture
def graded(tmp_path):
    """Grade a notebook of these cells."""

    def run(*cells, limits=LIMITS):
        path = write_notebook(tmp_path / "submission.ipynb", *cells)
        return grade(path, limits=limits)

    return run
