"""The marks of tests that grade."""

import pytest

GRADING = [
    pytest.mark.exact("test_exercises has the verdicts"),
    pytest.mark.precision,
]
