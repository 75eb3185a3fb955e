"""Grading a notebook made of cells."""

import pytest

from attnbook.grade import grade_notebook, sandbox
from notebooks import LIMITS, write_notebook


@pytest.fixture
def graded(tmp_path):
    """Grade a notebook of these cells."""

    def run(*cells, limits=LIMITS, **options):
        path = write_notebook(tmp_path / "submission.ipynb", *cells)
        return grade_notebook(path, limits=limits, **options)

    return run


@pytest.fixture
def isolated():
    """Skip a test on a platform that cannot isolate a notebook."""
    if not sandbox.is_complete():
        pytest.skip("this platform lacks a limit")
