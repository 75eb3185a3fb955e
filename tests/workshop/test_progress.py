"""A long command shows its seconds on a terminal, and nothing in a log."""

import subprocess
import sys

import pytest

from terminal import Terminal
from workshop import progress
from workshop.progress import Progress, main, run_with_progress, wait_for

pytestmark = [
    pytest.mark.exact("looks at what is printed"),
    pytest.mark.precision,
]
WAIT = "import time; time.sleep(0.3); print('found it')"


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(progress, "PAUSE", 0.05)


def test_a_log_gets_one_line_where_a_terminal_gets_many():
    log, screen = Terminal(False), Terminal(True)
    for stream in log, screen:
        shown = Progress(stream)
        shown.overwrite_line("5 %")
        shown.overwrite_line("10 %")
        shown.write_line("done")
    assert log.text == "done\n"
    assert screen.text.count("\r") == 3
    assert screen.text.endswith("done\n")


@pytest.mark.parametrize("real", [True, False], ids=["terminal", "pipe"])
def test_a_command_counts_its_seconds_on_a_terminal(real):
    stream = Terminal(real)
    done = run_with_progress("looking", [sys.executable, "-c", WAIT], Progress(stream))
    assert (done.returncode, done.stdout) == (0, "found it\n")
    assert ("looking: 0 s" in stream.text) == real
    assert bool(stream.text) == real
    assert not real or stream.text.endswith("\r\033[K")


def test_the_command_line_passes_on_what_it_prints_and_its_exit_code(capsys):
    code = "import sys; print('out'); print('err', file=sys.stderr); exit(7)"
    assert main(["it", "--", sys.executable, "-c", code]) == 7
    assert sorted(capsys.readouterr().out.split()) == ["err", "out"]
    assert main(["it", sys.executable]) == 2
    assert capsys.readouterr().out.startswith("usage: ")


def test_waiting_ends_when_the_time_is_up():
    quick, slow = (
        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({n})"])
        for n in (0, 60)
    )
    seen = []
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            wait_for([quick, slow], seen.append, 0.4)
    finally:
        slow.kill()
        slow.wait()
    assert len(seen) >= 2
    assert seen == sorted(seen)
    assert wait_for([quick], seen.append) == [0]
