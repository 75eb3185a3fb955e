"""The numeric tests and the notebooks under every instruction set of this CPU.

Three libraries compute what PyTorch computes on a CPU: Intel's MKL, PyTorch's
own kernels (ATen) and oneDNN. Each picks the newest instructions that the
processor has, and each can be told by an environment variable to use older
ones. Sums are then added in another order and rounded differently, as on
another machine. `python -m workshop.book.processors` (`make test-processors`)
runs the tests under every value alone, and under the oldest value of all three
together; a library that ignores a value is found by asking it what it uses.
Among the tests is every stored answer to every exercise, right and wrong, on
the usual draw of the inputs. The twenty draws and the mutants of `make bank`
are not repeated.

What passed is kept in `.processors/`, so that a run that was interrupted goes
on where it stopped. A change of any tested file starts it again.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from workshop.book.processor_settings import (
    Setting,
    choose_settings,
    find_obstacle,
)
from workshop.progress import Progress, wait_for

ROOT = Path.cwd()
LOGS = ROOT / ".processors"
MOST = 4  # workers, each of which takes up to 1.5 GB
# What `make plainest` leaves out: it repeats the rest in every `make test`.
QUICK = "numeric and not long and not browser and not bank"
ALL = "numeric and not browser and not bank"


@dataclass
class RunOutcome:
    """What one part of the tests came to under one setting."""

    passed: int
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def read_outcome(report: Path, status: int, log: Path) -> RunOutcome:
    """Return the outcome that pytest's JUnit report tells.

    A run without a report, or that ended in any way but "all passed" and "some
    failed", counts as one failure that names the log.
    """
    failures, passed = {}, 0
    for case in ET.parse(report).iter("testcase") if report.exists() else ():
        bad = next((x for x in case if x.tag in ("failure", "error")), None)
        place = case.get("classname", "").replace(".", "/")
        name = f"{place}::{case.get('name')}"
        if bad is not None:
            message = bad.get("message", "").strip().splitlines() or [""]
            failures[name] = message[0][:160]
        passed += bad is None and not any(x.tag == "skipped" for x in case)
    if status not in (0, 1) or (status == 1 and not failures):
        failures["pytest"] = f"ended with status {status}, see {log}"
    return RunOutcome(passed, failures)


def run_pytest(
    setting: Setting, part: str, options: Sequence[str], progress: Progress
) -> RunOutcome:
    """Run pytest with these options under a setting; return its outcome.

    What pytest prints goes to `.processors/SETTING-PART.log`.
    """
    log, report = (LOGS / f"{setting.name}-{part}.{x}" for x in ("log", "xml"))
    report.unlink(missing_ok=True)
    workers = max(1, min(MOST, os.cpu_count() or 1) // setting.threads)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers)]
    command += [f"--junitxml={report}", "-p", "no:cacheprovider", *options]
    began = time.perf_counter()
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            env=setting.make_environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )

        def show(seconds: float) -> None:
            text = log.read_text("utf8", "replace")
            done = re.findall(r"\[ *(\d+)%\]", text)
            far = f"{done[-1] if done else 0} %, {seconds:.0f} s"
            progress.overwrite_line(f"{setting.name}: {part}, {far}")

        try:
            wait_for([process], show)
        finally:
            process.kill()
    outcome = read_outcome(report, process.wait(), log)
    outcome.seconds = round(time.perf_counter() - began, 1)
    return outcome


def list_parts(
    setting: Setting, quick: bool, notebooks: Sequence[str]
) -> dict[str, list[str]]:
    """Return what is run under a setting: each part's options for pytest.

    A notebook that sets one thread itself is not repeated with two.

    Args:
        setting: the setting.
        quick: leave out the tests marked `long`.
        notebooks: pytest's options for repeating notebooks, and the notebooks;
            nothing where they are left out.
    """
    marked = QUICK if quick else ALL
    made = {"tests": ["--dist", "worksteal", "-m", marked, "tests"]}
    paths = [x for x in notebooks if x.endswith(".ipynb")]
    if setting.threads > 1:
        sets = "torch.set_num_threads(1)"
        paths = [x for x in paths if sets not in Path(x).read_text("utf8")]
    if paths:
        options = [x for x in notebooks if not x.endswith(".ipynb")]
        made["notebooks"] = [*options, *paths]
    return made


def compute_fingerprint(words: Sequence[str]) -> str:
    """Return a digest of all that is tested, and of how."""
    digest = hashlib.sha256(json.dumps([sys.version, *words]).encode())
    for folder in "lib", "tests", "chapters":
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path).encode() + path.read_bytes())
    digest.update(Path("requirements.txt").read_bytes())
    return digest.hexdigest()


class OutcomeStore:
    """What passed, in a file, as long as what is tested stays the same."""

    def __init__(self, file: Path, tested: str):
        self.file, self.tested, self.outcomes = file, tested, {}
        if file.exists():
            told = json.loads(file.read_text("utf8"))
            if told["tested"] == tested:
                self.outcomes = told["outcomes"]

    def get(self, name: str) -> RunOutcome | None:
        """Return the outcome of this name, if it is there."""
        found = self.outcomes.get(name)
        return RunOutcome(**found) if found else None

    def store(self, name: str, outcome: RunOutcome) -> None:
        """Add an outcome, and store all of them."""
        self.outcomes[name] = asdict(outcome)
        told = {"tested": self.tested, "outcomes": self.outcomes}
        whole = self.file.with_suffix(".part")
        whole.write_text(json.dumps(told, indent=1), "utf8")
        whole.replace(self.file)


def format_table(rows: dict[str, dict[str, RunOutcome] | str]) -> Iterator[str]:
    """Yield the lines of the table: a setting with its outcomes or a reason.

    What failed follows the table, each test with its settings.
    """
    wide = max(map(len, rows))
    yield f"{'setting':{wide}}  passed  failed  seconds"
    where: dict[str, list[str]] = {}
    for name, found in rows.items():
        if isinstance(found, str):
            yield f"{name:{wide}}  not tried: {found}"
            continue
        outcomes = found.values()
        passed, seconds = (
            sum(getattr(x, what) for x in outcomes) for what in ("passed", "seconds")
        )
        failed = sum(len(x.failures) for x in outcomes)
        yield f"{name:{wide}}  {passed:6}  {failed:6}  {seconds:7.0f}"
        for outcome in outcomes:
            for test, message in outcome.failures.items():
                where.setdefault(f"{test}  {message}", []).append(name)
    for test, names in where.items():
        yield f"failed under {', '.join(names)}: {test}"


def main(
    words: Sequence[str],
    run: Callable[..., RunOutcome] = run_pytest,
    why_not: Callable[[Setting], str] = find_obstacle,
) -> int:
    """Run the tests under each setting, print the table; 1 if any failed."""
    words = [*words]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        epilog="After --: pytest's options for notebooks, and the notebooks.",
    )
    parser.add_argument("settings", nargs="*", metavar="SETTING")
    parser.add_argument("--quick", action="store_true", help="no long tests")
    asked = parser.parse_args(words[:cut])
    try:
        chosen = choose_settings(asked.settings)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    notebooks = words[cut + 1 :]
    LOGS.mkdir(exist_ok=True)
    passed = OutcomeStore(LOGS / "passed.json", compute_fingerprint(notebooks))
    progress = Progress()
    rows: dict[str, dict[str, RunOutcome] | str] = {}
    for setting in chosen:
        if reason := why_not(setting):
            rows[setting.name] = reason
            progress.write_line(f"{setting.name}: not tried: {reason}")
            continue
        outcomes = rows[setting.name] = {}
        parts = list_parts(setting, asked.quick, notebooks)
        if notebooks and "notebooks" not in parts:
            progress.write_line(
                f"{setting.name}: notebooks: not repeated: each sets one thread"
            )
        for part, options in parts.items():
            name = f"{setting.name}-{part}"
            outcome = None if asked.quick else passed.get(name)
            again = "" if outcome is None else ", kept from an earlier run"
            if outcome is None:
                outcome = run(setting, part, options, progress)
                if not (asked.quick or outcome.failures):
                    passed.store(name, outcome)
            outcomes[part] = outcome
            failed = len(outcome.failures)
            progress.write_line(
                f"{setting.name}: {part}: {outcome.passed} passed, {failed} "
                f"failed, {outcome.seconds:.0f} s{again}"
            )
    print("", *format_table(rows), sep="\n")
    tried = [row for row in rows.values() if not isinstance(row, str)]
    failed = any(x.failures for row in tried for x in row.values())
    print(f"What pytest printed is in {LOGS.name}/.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
