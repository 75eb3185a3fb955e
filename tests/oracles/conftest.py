"""Nothing is skipped here: a missing package is a failed test.

`make oracles` makes an environment for these tests; their files are named
so that `make test` does not collect them.
"""

import pytest


def refuse(report):
    """Make a report of a skipped test or module one of a failure."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr
        reason = reason[-1] if isinstance(reason, tuple) else reason
        report.outcome = "failed"
        report.longrepr = f"nothing is skipped in make oracles: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return refuse((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return refuse((yield))
