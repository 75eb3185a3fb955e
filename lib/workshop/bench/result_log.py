"""A pytest plugin: writes each test's outcome at once, repeats none of them.

`pytest -p workshop.bench.result_log --notes tests.jsonl --setting HASH`. A test
with an outcome under the same setting is not repeated. So a run that is killed,
or loses its GPU, leaves what it found and is gone on with.
"""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

DONE = ("passed", "skipped", "failed", "out of memory")
# A test that was running when its process was killed, or that often when the
# time was up, is not tried again.
TRIES = 2


def pytest_addoption(parser):
    """Add the options."""
    parser.addoption("--notes", type=Path, help="one JSON line a test")
    parser.addoption("--setting", default="", help="code and machine, hashed")
    parser.addoption("--shard", default="0/1", help="i/n: every nth test")


def pytest_configure(config):
    """Begin to take notes."""
    if config.option.notes:
        path, setting = config.option.notes, config.option.setting
        notes = ResultLog(path, setting, config.option.shard)
        config.pluginmanager.register(notes)


def read_done(path: Path, setting: str) -> dict[str, dict]:
    """Return the last outcome of each test that is not to be repeated."""
    begun: Counter[str] = Counter()
    stopped: Counter[str] = Counter()
    found: dict[str, dict] = {}
    lines = path.read_text("utf8").splitlines() if path.exists() else []
    for line in map(parse_line, lines):
        if line.get("setting") != setting:
            continue
        name, outcome = line["test"], line["outcome"]
        if outcome in DONE:
            found[name] = line
        begun[name] += outcome == "begun"
        begun[name] -= outcome != "begun"
        stopped[name] += outcome == "stopped"
    for name in begun:
        if name not in found and (begun[name] > 0 or stopped[name] >= TRIES):
            why = "died" if begun[name] > 0 else "ran past the time limit"
            found[name] = {
                "test": name,
                "outcome": "failed",
                "error": f"the process {why} in this test",
            }
    return found


def parse_line(line: str) -> dict:
    """Return a line of notes; the last of a killed run may be half a line."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "test" in found else {}


class ResultLog:
    """What is noted during a run."""

    def __init__(self, path: Path, setting: str, shard: str = "0/1"):
        self.path, self.setting, self.now = path, setting, None
        self.shard = shard
        self.begun = 0.0

    def note(self, test: str, outcome: str, **more) -> None:
        """Write a line."""
        line = {"test": test, "outcome": outcome, "setting": self.setting}
        with self.path.open("a", encoding="utf8") as file:
            file.write(json.dumps(line | more) + "\n")

    def pytest_collection_modifyitems(self, config, items):
        """Leave out the tests that are done, and those of other shards."""
        done = read_done(self.path, self.setting)
        first, step = map(int, self.shard.split("/"))
        mine = [x for x in items[first::step] if x.nodeid not in done]
        rest = [x for x in items if x not in mine]
        config.hook.pytest_deselected(items=rest)
        items[:] = mine

    def pytest_runtest_logstart(self, nodeid):
        """Note that a test begins."""
        self.now, self.begun = nodeid, time.monotonic()
        self.note(nodeid, "begun")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Note how a test ended; stop when the GPU answers no more."""
        report = yield
        ended = report.when == "call" or report.outcome != "passed"
        if ended and self.now == item.nodeid:
            self.now, outcome, error = None, report.outcome, ""
            if call.excinfo is not None:
                error = " ".join(call.excinfo.exconly().split())[:300]
            if outcome == "failed" and "OutOfMemoryError" in error:
                outcome = "out of memory"
            took = round(time.monotonic() - self.begun, 2)
            self.note(item.nodeid, outcome, seconds=took, error=error)
            if outcome == "failed" and not self.answers():
                item.session.shouldstop = "the GPU answers no more"
        return report

    @staticmethod
    def answers() -> bool:
        """Tell whether the GPU, where there is one, still answers."""
        import torch

        from workshop.bench.timing import gpu_responds

        return gpu_responds("cuda" if torch.cuda.is_available() else "cpu")

    def pytest_keyboard_interrupt(self):
        """Note which test was stopped."""
        if self.now:
            self.note(self.now, "stopped")

    def pytest_sessionfinish(self, exitstatus):
        """Note that all tests were tried: not if collecting them failed."""
        ok, failed, none = 0, 1, 5
        if exitstatus in (ok, failed, none):
            self.note("", "end", shard=self.shard)
