"""When tests of Triton kernels run, and the kernels in Triton's interpreter."""

import json
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import pytest


def mark_kernels(what: str) -> list[pytest.MarkDecorator]:
    """Return the marks of tests that need Triton, and what is not done else."""
    reason = f"Triton is only made for Linux: its kernels were not {what}"
    linux = sys.platform == "linux"
    return [pytest.mark.kernel, pytest.mark.skipif(not linux, reason=reason)]


INTERPRETED = mark_kernels("tried")
COMPILED = mark_kernels("compiled")


def list_runs(cases) -> list[tuple[str, str]]:
    """Return the title and the dtype of each case that is interpreted."""
    return [*product(cases.CASES, ["float32"]), *product(cases.IN_HALF, ["float16"])]


@cache
def interpret_kernels() -> dict[tuple[str, str | None], dict]:
    """Return what each case came to in Triton's interpreter, by case and dtype."""
    report = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpret.py"))],
        capture_output=True,
        text=True,
    )
    assert report.returncode == 0, report.stderr[-3000:]
    rows = map(json.loads, report.stdout.splitlines())
    return {(r["case"], r.get("dtype")): r for r in rows}
