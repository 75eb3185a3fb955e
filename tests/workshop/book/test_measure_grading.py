"""The measurement of grading: what is extrapolated from what."""

import subprocess
import sys

import pytest

from workshop.book import measure_grading
from workshop.book.measure_grading import Timing, extrapolate


def test_what_a_run_takes_in_any_case_is_counted_once():
    start, each = 7.0, 0.5
    few, many = (Timing(n, 0.0, start + n * each, n) for n in (12, 60))
    assert extrapolate(few, many, 1000) == pytest.approx(start + 1000 * each)


def test_processor_time_counts_processes_that_ended():
    before = measure_grading.read_processor_time()
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert measure_grading.read_processor_time() - before > 0.29
