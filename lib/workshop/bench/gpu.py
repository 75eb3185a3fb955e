"""All that needs a GPU, in one command: `make gpu OUT=folder`.

It runs the tests marked `cuda`, the code cells of the chapters on GPUs, and the
benchmark, each for a limited time, and writes what it finds at once. The same
command goes on with what is left; what was done with the same code on the same
machine is not repeated. A bare machine will do: Python with torch, Triton,
NumPy, matplotlib, pytest and jaxtyping.
"""

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from workshop.bench.machine import (
    LIBRARY,
    MEASURED,
    hash_code,
    identify,
    list_files,
)
from workshop.bench.notebook_cells import BAD, read_code_cells
from workshop.progress import Progress, wait_for

ROOT = LIBRARY.parent
CHAPTERS = ("10_cost", "11_flash_attention")
# Seconds for all stages, less than ten minutes; and for each but the last.
TOTAL = 530
LIMITS = {"tests": 170, "10_cost": 60, "11_flash_attention": 80}
# Seconds in which a stage that is told to stop does so.
PATIENCE = 15
# The longest row of the benchmark.
ROW = 25
# What a stage ends with: None, its time was up; 0, 1: tried all; 3: some left.
CODES = (None, 0, 1, 3)
NO_GPU = (
    "This needs an NVIDIA GPU, and PyTorch {} sees none on this machine: "
    "nothing was run and nothing written."
)


@dataclass(frozen=True)
class Stage:
    """A command, and how its record is read.

    Attributes:
        name: of the stage.
        command: what runs; it appends to the record and can be repeated.
        record: the file that it writes.
        limit: seconds it may take.
        code: hash of the code that it runs.
        read: returns counts, failures and whether everything was tried.
        more: returns further arguments, from the seconds that it may take.
        shards: how many processes share the work. Most of the tests' time goes
            into compiling kernels, which takes one core each.
    """

    name: str
    command: Sequence[str]
    record: Path
    limit: float
    code: str
    read: Callable[["Stage"], dict]
    more: Callable[[float], list[str]] = field(default=lambda seconds: [])
    shards: int = 1


def read_lines(path: Path) -> list[dict]:
    """Return the records of a file with one JSON object a line."""
    found = []
    for line in path.read_text("utf8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:  # a run that was killed may leave half a line
            continue
    return found


def read_tests(stage: Stage) -> dict:
    """Return how many tests passed, and which failed."""
    from workshop.bench.result_log import read_done

    tests = read_done(stage.record, stage.code)
    ended = {
        x["shard"]
        for x in read_lines(stage.record)
        if x.get("outcome") == "end" and x.get("setting") == stage.code
    }
    tests.pop("", None)
    counts: dict[str, int] = {}
    for found in tests.values():
        counts[found["outcome"]] = counts.get(found["outcome"], 0) + 1
    failed = {
        name: f"{x['outcome']}: {x.get('error', '')}"
        for name, x in tests.items()
        if x["outcome"] not in ("passed", "skipped")
    }
    wanted = {f"{i}/{stage.shards}" for i in range(stage.shards)}
    complete = wanted <= ended and bool(tests)
    return {"counts": counts, "failed": failed, "complete": complete}


def read_cells(stage: Stage) -> dict:
    """Return how many cells ran in the last try, and which failed."""
    every = read_lines(stage.record)
    starts = [
        i for i, x in enumerate(every)
        if x["outcome"] == "start" and x["setting"] == stage.code
    ]  # fmt: skip
    last = every[starts[-1] :] if starts else []
    cells = {x["cell"]: x for x in last if "cell" in x}
    counts: dict[str, int] = {}
    for found in cells.values():
        counts[found["outcome"]] = counts.get(found["outcome"], 0) + 1
    failed = {
        f"cell {n}": f"{x['outcome']}: {x.get('error', '')}"
        for n, x in cells.items()
        if x["outcome"] in (*BAD, "begun")
    }
    return {
        "counts": counts,
        "left out": {
            f"cell {n}": x["error"]
            for n, x in cells.items()
            if x["outcome"] == "left out"
        },
        "failed": failed,
        "complete": bool(last) and last[-1]["outcome"] == "end",
    }


def read_bench(setting: dict, stage: Stage) -> dict:
    """Return how many rows were measured in a setting, and which failed."""
    from workshop.bench.table import format_table

    if not stage.record.exists():
        return {"counts": {}, "failed": {}, "complete": False}
    record = json.loads(stage.record.read_text("utf8"))
    wanted = setting | {"code": stage.code}
    if any(record.get(k) != v for k, v in wanted.items()):
        return {"counts": {}, "failed": {}, "complete": False}
    rows = record["rows"]
    failed = {row["key"]: row["failed"] for row in rows if "failed" in row}
    return {
        "counts": {"measured": len(rows) - len(failed), "failed": len(failed)},
        "failed": record["wrong"] | failed,
        "complete": record.get("left") == [],
        "table": format_table(record),
    }


def list_stages(out: Path, plan: str, setting: dict) -> list[Stage]:
    """Return the stages of a run, those that prove the most first."""
    python = [sys.executable, "-m"]
    library = list_files(["**/*.py"])
    tests = sorted(
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.cuda" in path.read_text("utf8")
    )
    beside = [
        ROOT / "tests/conftest.py",
        *sorted((ROOT / "tests/helpers").glob("*.py")),
    ]

    def hashed(paths: list[Path], text: str = "") -> str:
        whole = json.dumps(setting) + hash_code(paths) + text
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    code = hashed(library + beside)
    notes = out / "tests.jsonl"
    command = [*python, "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider"]
    command += ["-p", "workshop.bench.result_log", "--notes", str(notes)]
    command += ["--setting", code, *map(str, tests)]
    limit, shards = LIMITS["tests"], min(6, max(1, (os.cpu_count() or 1) // 2))
    found = [Stage("tests", command, notes, limit, code, read_tests, shards=shards)]
    for name in CHAPTERS:
        notebook = ROOT / "chapters" / f"{name}.ipynb"
        source = json.dumps(read_code_cells(notebook))
        code, record = hashed(library, source), out / f"{name}.jsonl"
        command = [*python, "workshop.bench.notebook_cells", str(notebook)]
        command += ["--out", str(record), "--setting", code]
        found.append(Stage(name, command, record, LIMITS[name], code, read_cells))
    record = out / f"flash_{plan}.json"
    command = [*python, "workshop.bench", "flash", f"--{plan}", "--out"]
    found.append(
        Stage(
            "bench", [*command, str(record)], record, TOTAL,
            hash_code(list_files(MEASURED)), partial(read_bench, setting),
            lambda seconds: ["--limit", f"{max(1, seconds - ROW):.0f}"],
        )
    )  # fmt: skip
    return found


def run_stage(stage: Stage, seconds: float, log: Path) -> int | None:
    """Run a stage; return its exit code, or None if its time was up."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(ROOT / "lib"), os.environ.get("PYTHONPATH")))
        ),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "Agg",
    }
    with log.open("a", encoding="utf8") as file:
        children = []
        for i in range(stage.shards):
            command = [*stage.command, *stage.more(seconds)]
            if stage.shards > 1:
                command += ["--shard", f"{i}/{stage.shards}"]
            file.write(f"\n# {stage.name}: {' '.join(command)}\n")
            file.flush()
            children.append(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        progress = Progress()

        def show(passed: float) -> None:
            progress.overwrite_line(
                f"{stage.name}: {passed:.0f} of at most {seconds:.0f} s"
            )

        try:
            return max(wait_for(children, show, seconds))
        except subprocess.TimeoutExpired:
            file.write(f"# {stage.name}: stopped after {seconds:.0f} s\n")
            return None
        finally:
            progress.clear_line()
            stop_children(children)


def stop_children(children: Sequence[subprocess.Popen]) -> None:
    """Interrupt what still runs, so that it writes what it has; then end it."""
    for number in (signal.SIGINT, signal.SIGKILL):
        left = [child for child in children if child.poll() is None]
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
        end = time.monotonic() + PATIENCE
        for child in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=max(0.0, end - time.monotonic()))


def run_stages(
    found: list[Stage], out: Path, setting: dict, total: float = TOTAL
) -> dict:
    """Run what is not done; return the summary, written after each stage."""
    begun = time.monotonic()
    summary = dict(setting) | {"stages": {}}
    for stage in found:
        result = stage.read(stage)
        took, tried = 0.0, -1
        while not result["complete"] and sum(result["counts"].values()) > tried:
            # A try that got nowhere is the last: nothing would change.
            tried = sum(result["counts"].values())
            left = total - (time.monotonic() - begun) - PATIENCE
            seconds = min(stage.limit - took, left)
            if seconds <= PATIENCE:
                break
            start = time.monotonic()
            print(f"{stage.name}: up to {seconds:.0f} s", flush=True)
            result = {"exit": run_stage(stage, seconds, out / "log.txt")}
            took += time.monotonic() - start
            result |= stage.read(stage)
        if not result["complete"] and result.get("exit") not in CODES:
            why = f"ended with exit code {result['exit']}: see log.txt"
            result["failed"]["the stage"] = why
        result["seconds"], result["code"] = round(took, 1), stage.code
        summary["stages"][stage.name] = result
        write_summary(summary, out)
        print(format_stage(stage.name, result), flush=True)
    return summary


def format_stage(name: str, result: dict) -> str:
    """Return a stage's result on one line."""
    counts = ", ".join(f"{n} {what}" for what, n in result["counts"].items())
    end = "complete" if result["complete"] else "NOT complete"
    return f"{name}: {end}; {counts or 'nothing'}; {result['seconds']} s"


def format_summary(summary: dict) -> str:
    """Return a summary to be read."""
    found = [f"{k}: {v}" for k, v in summary.items() if k != "stages"]
    for name, result in summary["stages"].items():
        found += ["", format_stage(name, result)]
        for kind in ("failed", "left out"):
            texts = result.get(kind, {})
            found += [f"  {kind}: {k}: {v}" for k, v in texts.items()]
        found += result.get("table", "").splitlines()
    return "\n".join(found) + "\n"


def write_summary(summary: dict, out: Path) -> None:
    """Write the summary as JSON and as text."""
    for name, content in (
        ("summary.json", json.dumps(summary, indent=1) + "\n"),
        ("summary.txt", format_summary(summary)),
    ):
        beside = out / f"{name}.part"
        beside.write_text(content, "utf8")
        beside.replace(out / name)


def choose_exit_code(summary: dict) -> int:
    """Return 1 if anything failed, 3 if something is left, 0 otherwise."""
    results = summary["stages"].values()
    if any(result["failed"] for result in results):
        return 1
    return 0 if all(result["complete"] for result in results) else 3


def main(words: list[str] | None = None) -> int:
    """Run everything; return 0, or 1: failed, 2: no GPU, 3: something left."""
    parser = argparse.ArgumentParser(prog="make gpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--full", action="store_true", help="every row")
    options = parser.parse_args(words)
    try:
        import torch
    except ImportError:
        message = f"{sys.executable} has no torch: name one that has it, as PYTHON="
        print(message, file=sys.stderr)
        return 2
    if not (torch.cuda.is_available() and torch.version.cuda):
        print(NO_GPU.format(torch.__version__), file=sys.stderr)
        return 2
    out = options.out.resolve()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"cannot write to OUT={options.out}: {error}", file=sys.stderr)
        return 2
    setting = identify("cuda", hash_code(list_files(["**/*.py"])))
    plan = "full" if options.full else "quick"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        summary = run_stages(list_stages(out, plan, setting), out, setting)
    except KeyboardInterrupt:
        print("stopped: the same command goes on", file=sys.stderr)
        return 3
    print(f"written to {out / 'summary.txt'}")
    if choose_exit_code(summary) == 3:
        print("not everything was tried in the time: the same command goes on")
    return choose_exit_code(summary)


if __name__ == "__main__":
    sys.exit(main())
