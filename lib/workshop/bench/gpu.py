"""All that needs a GPU, in at most nine minutes: `make gpu OUT=folder`.

The tests marked `cuda`, the benchmark of the kernels, and the code cells of the
chapters on GPUs, in this order. Each finished step leaves a file in the folder,
and the same command goes on with those that are missing. A bare machine will do:
Python with torch, triton, numpy, matplotlib, pytest and jaxtyping.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

from workshop.bench.__main__ import format_table
from workshop.bench.kernels import CASES
from workshop.bench.record import LIBRARY, open_folder, write_json

ROOT = LIBRARY.parent
CHAPTERS = ("10_cost", "11_flash_attention")
SECONDS = 525
CHUNKS = 24  # of the tests; most of their time compiles kernels, on one core each
PYTEST = ["pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider"]
PYTEST += ["-o", "addopts=--import-mode=importlib"]


def run(command: Sequence[str], log: Path, end: float) -> None:
    """Run one Python module until its end, or until the time is up."""
    command = [sys.executable, "-m", *command]
    more = {"PYTHONPATH": str(LIBRARY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    left, both = max(0, end - time.monotonic()), os.environ | more
    with log.open("a", encoding="utf8") as file:
        try:
            subprocess.run(
                command, cwd=ROOT, env=both, stdout=file, stderr=file, timeout=left
            )
        except subprocess.TimeoutExpired:
            file.write(f"stopped, because the time was up: {command}\n")


def collect_tests(out: Path, end: float) -> list[str]:
    """Return the names of the tests marked `cuda`, the same in every run."""
    path, log = out / "tests.json", out / "collected.txt"
    if not path.exists():
        log.unlink(missing_ok=True)
        files = sorted((ROOT / "tests").rglob("test_cuda*.py"))
        run([*PYTEST, "--collect-only", *map(str, files)], log, end)
        lines = log.read_text("utf8").splitlines()
        write_json(path, [line for line in lines if line.startswith("tests/")])
    return json.loads(path.read_text("utf8"))


def run_tests(out: Path, end: float) -> None:
    names = collect_tests(out, end)
    with ThreadPoolExecutor(min(6, max(1, (os.cpu_count() or 1) // 2))) as pool:
        for number in range(CHUNKS):
            chunk, record = names[number::CHUNKS], out / f"tests_{number:02}.xml"
            if chunk and not record.exists():
                command = [*PYTEST, f"--junitxml={record}", *chunk]
                pool.submit(run, command, out / "tests.log", end)


def run_benchmark(out: Path, end: float) -> None:
    measured = -1
    while measured < len(found := [*out.glob("case_*.json")]) < len(CASES):
        measured = len(found)
        seconds = f"{end - time.monotonic():.0f}"
        command = ["workshop.bench", "--out", str(out), "--seconds", seconds]
        run(command, out / "bench.log", end)


def run_notebooks(out: Path, end: float) -> None:
    for name in CHAPTERS:
        record, notebook = out / f"cells_{name}.json", f"chapters/{name}.ipynb"
        if not record.exists():
            command = ["workshop.bench.cells", notebook, str(record)]
            run(command, out / "cells.log", end)


def summarize(out: Path) -> tuple[str, bool, bool]:
    """Return a summary, whether something failed, and whether something is left."""
    counts: Counter[str] = Counter()
    failed = []
    for record in sorted(out.glob("tests_*.xml")):
        for test in ElementTree.parse(record).iter("testcase"):
            ends = [x for x in test if x.tag in ("failure", "error", "skipped")]
            counts[ends[0].tag if ends else "passed"] += 1
            if ends and ends[0].tag != "skipped":
                failed.append(f"{test.get('name')}: {ends[0].get('message')}")
    tests = len(json.loads((out / "tests.json").read_text("utf8")))
    left = not tests or counts.total() < tests
    lines = [f"{tests} tests marked cuda: {dict(counts)}"]
    for name in CHAPTERS:
        record = out / f"cells_{name}.json"
        cells = json.loads(record.read_text("utf8")) if record.exists() else []
        left |= not cells
        lines.append(f"{name}: {dict(Counter(cell['outcome'] for cell in cells))}")
        wrong = [cell for cell in cells if cell["outcome"] == "failed"]
        failed += [f"{name}, cell {cell['cell']}: {cell['error']}" for cell in wrong]
    measured = [json.loads(p.read_text("utf8")) for p in out.glob("case_*.json")]
    left |= len(measured) < len(CASES)
    lines.append(f"benchmark: {len(measured)} of {len(CASES)} cases")
    for case in measured:
        if "ours" in case["refused"]:
            failed.append(f"{case['name']}, ours: {case['refused']['ours']}")
    lines += [f"FAILED {text}" for text in failed]
    return "\n".join([*lines, "", format_table(out)]), bool(failed), left


def main(words: list[str] | None = None) -> int:
    """Run everything; return 0, or 1 if something failed, 3 if something is left."""
    parser = argparse.ArgumentParser(prog="make gpu")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    out = parser.parse_args(words).out.resolve()
    open_folder(out)
    end = time.monotonic() + SECONDS
    for step in (run_tests, run_benchmark, run_notebooks):
        begun = time.monotonic()
        step(out, end)
        print(f"{step.__name__}: {time.monotonic() - begun:.0f} s", flush=True)
    text, failed, left = summarize(out)
    (out / "summary.md").write_text(text, "utf8")
    print(text)
    if left:
        print("not everything was done: the same command goes on")
    return 1 if failed else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
