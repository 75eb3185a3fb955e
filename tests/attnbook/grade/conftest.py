"""Grading a notebook made of cells."""

import pytest

from attnbook.grade import grade_notebook
from notebooks import LIMITS, write_notebook


@pytest.fixture
def graded(tmp_path):
    """Grade a notebook of these cells."""

    def run(*cells, limits=LIMITS, **options):
        path = write_notebook(tmp_path / "submission.ipynb", *cells)
        return grade_notebook(path, limits=limits, **options)

    return run


@pytest.fixture(scope="session")
def lacking():
    """Return what this platform cannot do to isolate a notebook."""
    found = []
    cell = "import attnbook.exercises.scaled_dot_product"
    grade_notebook(write_notebook(None, cell), tell=found.append)
    return found[0]
