"""The marks of tests that grade."""

import pytest

GRADING = [
    pytest.mark.precision,
]
