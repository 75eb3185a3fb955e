"""The marks of tests that grade, and what they need of the sandbox."""

import pytest

GRADING = [
    pytest.mark.exact("test_exercises has the verdicts"),
    pytest.mark.precision,
]


def require_isolation(lacking):
    """Skip a test on a platform that cannot isolate a notebook."""
    if lacking:
        pytest.skip(f"this platform cannot {lacking}")
