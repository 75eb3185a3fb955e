"""The marks of tests that grade, and what they need of the sandbox."""

import os

import pytest

GRADING = [
    pytest.mark.precision,
]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX")
IN_SANDBOX = [*GRADING, needs_fork]


def require_limits(limits_set, *names):
    """Skip a test on a platform that cannot set one of these limits."""
    if missing := {*names} - {*limits_set}:
        pytest.skip(f"this platform lacks limits for {', '.join(missing)}")
