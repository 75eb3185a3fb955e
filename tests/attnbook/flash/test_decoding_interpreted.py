"""The decoding kernels in Triton's interpreter, in a process of its own."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from decoding_cases import CASES

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.long,
    pytest.mark.skipif(
        sys.platform != "linux",
        reason="Triton is only made for Linux: its kernels were not tried",
    ),
]
SCRIPT = Path(__file__).parents[2] / "helpers/interpret_decoding.py"


@cache
def interpreted():
    """Return what each case came to, all in one process of its own."""
    report = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True
    )
    assert report.returncode == 0, report.stderr[-3000:]
    rows = map(json.loads, report.stdout.splitlines())
    return {(r["case"], r.get("dtype")): r for r in rows}


@pytest.mark.parametrize("way", ["cache", "pages"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("title", CASES)
def test_interpreted_kernels_equal_the_reference(title, dtype, way):
    found = interpreted()[title, dtype][way]
    assert found["share"] <= 1
    assert found["unharmed"]
    assert found["same"]


@pytest.mark.parametrize(
    ("title", "parts"),
    [("several parts", 3), ("an empty sequence, and one key", 2)],
)
def test_the_kernel_merges_as_merge_does(title, parts):
    found = interpreted()[f"merged: {title}", None]
    assert found["parts"] == parts
    assert found["difference"] <= 1e-6


def test_no_number_leads_outside_the_pool():
    found = interpreted()["bounds", None]
    assert found["same"]
    assert found["finite"]


def test_offsets_beyond_a_tile_are_computed_in_64_bits():
    """In kernels without one of the conversions, an offset passes the limit."""
    found = interpreted()["narrow", None]
    assert not found["overflows"]
    assert len(found["without"]) == 4
    assert all(found["without"].values()), found["without"]
