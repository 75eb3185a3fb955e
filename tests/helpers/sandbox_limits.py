"""What a test needs of the sandbox, which not every platform has."""

import pytest


def require_limits(limits_set, *names):
    """Skip a test on a platform that cannot set one of these limits."""
    if missing := {*names} - {*limits_set}:
        pytest.skip(f"this platform lacks limits for {', '.join(missing)}")
