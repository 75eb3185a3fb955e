"""All that needs a GPU, in at most nine minutes: `make gpu OUT=folder`.

The tests marked `cuda`, the benchmark of the kernels, and the code cells of the
chapters on GPUs, in this order, each until a time of its own, so that slow tests
leave room for the benchmark. Each finished part leaves a file in the folder, and
the same command goes on with those that are missing. A bare machine will do:
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
from workshop.bench.kernels import CASES, TUTORIAL
from workshop.bench.record import LIBRARY, open_folder, write_json

ROOT = LIBRARY.parent
CHAPTERS = ("10_cost", "11_flash_attention")
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
            done = subprocess.run(
                command, cwd=ROOT, env=both, stdout=file, stderr=file, timeout=left
            )
            file.write(f"ended with {done.returncode}: {command}\n")
        except subprocess.TimeoutExpired:
            file.write(f"stopped, because the time was up: {command}\n")


def collect_tests(out: Path, end: float) -> None:
    """List the tests marked `cuda`, the same in every run."""
    path, log = out / "tests.json", out / "collected.txt"
    if not path.exists():
        log.write_text("", "utf8")
        files = sorted((ROOT / "tests").rglob("test_cuda*.py"))
        run([*PYTEST, "--collect-only", *map(str, files)], log, end)
        lines = log.read_text("utf8").splitlines()
        if names := [line for line in lines if line.startswith("tests/")]:
            write_json(path, names)


def read_json(path: Path) -> list:
    return json.loads(path.read_text("utf8")) if path.exists() else []


def run_tests(out: Path, end: float) -> None:
    collect_tests(out, end)
    names = read_json(out / "tests.json")
    with ThreadPoolExecutor(min(6, max(1, (os.cpu_count() or 1) // 2))) as pool:
        for number in range(CHUNKS):
            chunk, record = names[number::CHUNKS], out / f"tests_{number:02}.xml"
            if chunk and not record.exists():
                command = [*PYTEST, f"--junitxml={record}", *chunk]
                pool.submit(run, command, out / "tests.log", end)


def list_unmeasured(out: Path) -> list[str]:
    cases = [f"case_{case.name}" for case in CASES]
    return [name for name in cases if not (out / f"{name}.json").exists()]


def run_benchmark(out: Path, end: float) -> None:
    """Run it again after a case that ends the process, as long as others begin."""
    known = -1
    while list_unmeasured(out) and known < len(found := [*out.glob("case_*")]):
        known = len(found)
        run(["workshop.bench", "--out", str(out)], out / "bench.log", end)


def run_notebooks(out: Path, end: float) -> None:
    for name in CHAPTERS:
        record, notebook = out / f"cells_{name}.json", f"chapters/{name}.ipynb"
        if not record.exists():
            command = ["workshop.bench.cells", notebook, str(record)]
            run(command, out / "cells.log", end)


# Until when, in seconds; what is left goes on after that.
STEPS = [(run_tests, 200), (run_benchmark, 450), (run_notebooks, 525)]
STEPS += [(run_tests, 525), (run_benchmark, 525)]


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
    tests = len(read_json(out / "tests.json"))
    left = not tests or counts.total() < tests
    lines = [f"{tests} tests marked cuda: {dict(counts)}"]
    collected = (out / "collected.txt").read_text("utf8").splitlines()
    failed += [x for x in collected if x.startswith("ERROR")]
    if (log := out / "tests.log").exists():  # a signal leaves no record
        crashed = [x for x in log.read_text("utf8").splitlines() if "ended with -" in x]
        failed += [x[:200] for x in crashed]
    if not tests:
        failed.append(f"no test was found: {' '.join(collected[-1:])}")
    for name in CHAPTERS:
        cells = read_json(out / f"cells_{name}.json")
        left |= not cells
        lines.append(f"{name}: {dict(Counter(cell['outcome'] for cell in cells))}")
        wrong = [cell for cell in cells if cell["outcome"] == "failed"]
        failed += [f"{name}, cell {cell['cell']}: {cell['error']}" for cell in wrong]
    measured = [json.loads(p.read_text("utf8")) for p in out.glob("case_*.json")]
    unmeasured = list_unmeasured(out)
    left |= bool(unmeasured)
    lines.append(f"benchmark: {len(measured)} cases, not yet {unmeasured}")
    begun = [x for x in unmeasured if (out / f"{x}.begun").exists()]
    lines += [f"{name} began and did not end: see bench.log" for name in begun]
    if not TUTORIAL:
        lines.append("Triton's tutorial kernel was not at hand: TUTORIAL=its file")
    for case in measured:
        why = case["refused"].get("ours", "")
        if why and "strict=True excludes" not in why:  # not taken is no failure
            failed.append(f"{case['name']}, ours: {why}")
    lines += [f"FAILED {text}" for text in failed]
    return "\n".join([*lines, "", format_table(out)]), bool(failed), left


def main(words: list[str] | None = None) -> int:
    """Run everything; return 0, or 1 if something failed, 3 if something is left."""
    parser = argparse.ArgumentParser(prog="make gpu")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    out = parser.parse_args(words).out.resolve()
    open_folder(out)
    start = time.monotonic()
    for step, seconds in STEPS:
        step(out, start + seconds)
        print(f"{step.__name__}: at {time.monotonic() - start:.0f} s", flush=True)
    text, failed, left = summarize(out)
    (out / "summary.md").write_text(text, "utf8")
    print(text)
    if left:
        print("not everything was done: the same command goes on")
    return 1 if failed else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
