"""What one submission cannot do to the others, to the grader, or to files.

Each test was written for a hole that once existed. Tests that need a limit of
the platform are skipped without it.
"""

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attnbook.grade import batch, command, files, seccomp
from attnbook.grade.process_limits import Limits
from attnbook.grade.sandbox import scale_timeout
from notebooks import (
    ATTEND,
    CHECK,
    RIGHT,
    read_points,
    read_slug,
    write_notebook,
)
from sandbox_limits import IN_SANDBOX, require_limits

pytestmark = IN_SANDBOX


@pytest.fixture
def odd_files(tmp_path):
    """Files that never end, or are too large, and what is said of them."""
    endless, pipe, huge, folder = (
        tmp_path / f"{name}.ipynb" for name in ("a", "b", "c", "d")
    )
    endless.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(100 * 2**30)
    folder.mkdir()
    regular = "it is not a regular file"
    return {
        **dict.fromkeys((endless, pipe, folder), regular),
        huge: "it is larger than 64 MB",
    }


@pytest.mark.parametrize("nth", range(4))
def test_a_file_that_never_ends_is_named(odd_files, nth):
    """In a process of its own, because a pipe would block this one."""
    path, message = list(odd_files.items())[nth]
    code = (
        "import resource, sys, pathlib\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 ** 29, 2 ** 29))\n"
        "from attnbook.grade import files, batch\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "batch.Journal(None).key(path)\n"
        "files.read_bytes(path)\n"
    )
    run = [sys.executable, "-c", code, str(path)]
    found = subprocess.run(run, capture_output=True, timeout=20, text=True)
    assert f"ValueError: {message}" in found.stderr


def test_a_file_that_never_ends_does_not_stop_the_others(
    odd_files, tmp_path, monkeypatch
):
    monkeypatch.setattr(batch, "start_pool", lambda n: ThreadPoolExecutor(n))
    good = write_notebook(tmp_path / "good.ipynb", RIGHT, CHECK)
    kept = tmp_path / "all.json"
    words = [str(x) for x in (*odd_files, good)]
    assert command.main([*words, "--workers", "1", "--json", str(kept)]) == 0
    found = {Path(x["notebook"]): x for x in json.loads(kept.read_text())}
    assert {path: found[path]["error"] for path in odd_files} == odd_files
    assert found[good]["points"] == 1


DEEP = (
    "import os\nfor n in range({0}):\n    os.mkdir('d')\n    os.chdir('d')\n"
    "    open('f', 'w').close()\n"
)


def test_a_nested_folder_is_removed_with_all_it_holds(graded, monkeypatch):
    # In memory, where there is such a place: a disk takes seconds for this.
    place = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir=place) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        result = graded(DEEP.format(1500), RIGHT, CHECK)
        assert os.listdir(folder) == []
    assert (result["error"], result["notes"]) == (None, [])
    assert read_points(result)[0] == 1


def test_a_folder_without_permissions_is_removed():
    """As an ordinary user, because permissions do not stop root."""
    code = (
        "import os, tempfile\n"
        "from attnbook.grade import files\n"
        "os.getuid() or os.setuid(65534)\n"
        "top = tempfile.mkdtemp()\n"
        "os.makedirs(f'{top}/a/b/c')\n"
        "open(f'{top}/a/b/c/f', 'w').close()\n"
        "for x in ('a/b/c/f', 'a/b/c', 'a/b', 'a', ''):\n"
        "    os.chmod(f'{top}/{x}', 0)\n"
        "files.remove_folder(top)\n"
        "assert not os.path.exists(top)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


def test_removing_a_folder_follows_no_link(tmp_path):
    kept, removed = tmp_path / "kept", tmp_path / "removed"
    for folder in kept, removed:
        folder.mkdir()
    (kept / "points.csv").write_text("1")
    (removed / "link").symlink_to(kept)
    files.remove_folder(str(removed))
    assert not removed.exists()
    assert (kept / "points.csv").read_text() == "1"


def test_no_variable_of_the_environment_reaches_the_notes(graded):
    # pytest sets a variable, which plays a secret of the teacher.
    assert "PYTEST_CURRENT_TEST" in os.environ
    result = graded(
        "import os; raise ValueError('PYTEST_CURRENT_TEST' in os.environ)",
        "raise ValueError(b'PYTEST' in open('/proc/self/environ','rb').read())",
        RIGHT,
        CHECK,
    )
    assert [x[8:] for x in result["notes"]] == ["ValueError: False"] * 2
    assert read_points(result)[0] == 1


def test_the_environment_of_the_grader_cannot_be_read(graded, limits_set, monkeypatch):
    require_limits(limits_set, "writing elsewhere")
    read = (
        "found = []\nfor n in __import__('os').listdir('/proc'):\n"
        "    try:\n        found.append(open(f'/proc/{n}/environ').read())\n"
        "    except OSError: pass\n"
        "assert found\nassert not any('GRADER_SECRET' in x for x in found)"
    )
    code = "import sys; print(flush=True); sys.stdin.read()"
    given = {**os.environ, "GRADER_SECRET": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=given,
    ) as other:
        assert other.stdout.readline()
        found = Path(f"/proc/{other.pid}/environ").read_text()
        assert "GRADER_SECRET" in found
        result = graded(read, RIGHT, CHECK)
        other.communicate()
    assert result["notes"] == []


def test_a_socket_in_the_file_system_cannot_be_reached(graded, limits_set, tmp_path):
    require_limits(limits_set, "sockets")
    with (
        socket.socket(socket.AF_UNIX) as server,
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
    ):
        place = f"{folder}/s"
        server.bind(place)
        server.listen()
        server.setblocking(False)
        reached = f"import socket\nsocket.socket(socket.AF_UNIX).connect({place!r})"
        packets = (
            "import socket\n"
            "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            f"a.sendto(b'x', {place!r})"
        )
        kept = "import socket\na, b = socket.socketpair()\na.send(b'x')\n"
        result = graded(reached, packets, kept, RIGHT, CHECK)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert [x[:22] for x in result["notes"]] == [
        f"cell {n}: PermissionError"[:22] for n in (1, 2)
    ]
    assert read_points(result)[0] == 1


def test_times_and_attributes_of_files_elsewhere_stay(graded, limits_set, tmp_path):
    require_limits(limits_set, "times and attributes")
    victim = tmp_path / "points.csv"
    victim.write_text("1")
    victim.chmod(0o600)
    before = victim.stat()
    result = graded(
        f"import os; os.utime({str(victim)!r}, (1, 1))",
        f"import os; os.setxattr({str(victim)!r}, 'user.mine', b'1')",
        f"import os; os.chmod({str(victim)!r}, 0o777)",
        f"import os; os.chown({str(victim)!r}, -1, 65534)",
        # A student's own files can still be copied.
        "import shutil\nopen('mine', 'w').close()\nshutil.copy2('mine', 'too')",
        RIGHT,
        CHECK,
    )
    after = victim.stat()
    assert (after.st_mtime_ns, after.st_mode, after.st_gid) == (
        before.st_mtime_ns,
        before.st_mode,
        before.st_gid,
    )
    assert os.listxattr(victim) == []
    assert [x[:7] for x in result["notes"]] == ["cell 2:"]
    assert read_points(result)[0] == 1


def test_no_memory_is_held_outside_the_limit(graded, limits_set):
    require_limits(limits_set, "hidden memory")
    shared = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "found = libc.shmget(0, 1 << 30, 0o1600)\nassert found < 0"
    )
    result = graded("import os; os.memfd_create('x')", shared, RIGHT, CHECK)
    assert [x[:7] for x in result["notes"]] == ["cell 1:"]
    assert read_points(result)[0] == 1


def test_a_kernel_that_can_filter_system_calls_does(limits_set):
    known = Path("/proc/sys/kernel/seccomp/actions_avail").exists()
    if not known or platform.machine() not in seccomp.PROCESSORS:
        pytest.skip("no filter of system calls is known here")
    assert {"sockets", "times and attributes", "hidden memory"} <= {*limits_set}
    assert "network" in limits_set


def test_the_filter_has_one_answer_for_every_call_it_names():
    for processor, pair, refused in seccomp.PROCESSORS.values():
        numbers = [n for each in refused.values() for n in each]
        assert len(numbers) == len({*numbers, pair}) - 1
        raw = seccomp.compile_filter(processor, pair, refused)
        assert len(raw) == 8 * (2 * len(numbers) + 13)


def test_without_namespaces_there_is_no_network_either(limits_set):
    """As in a container, which may not make namespaces."""
    require_limits(limits_set, "sockets")
    code = (
        "import socket, tempfile\n"
        "from attnbook.grade import process_limits\n"
        "process_limits.enter_namespaces = lambda: False\n"
        "process_limits.separate_network = lambda: False\n"
        "limits = process_limits.Limits()\n"
        "up = process_limits.apply_limits(tempfile.mkdtemp(), limits)\n"
        "assert 'network' in up, up\n"
        "for family in socket.AddressFamily:\n"
        "    try:\n        socket.socket(family)\n"
        "    except PermissionError:\n        continue\n"
        "    raise SystemExit(f'{family} is open')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


# Cells that never end: what they catch, and in which code they are.
ENDLESS = {
    "every exception": "while True:\n try:\n  while True: pass\n"
    " except BaseException: pass",
    "nothing, in C": "sum(range(10 ** 12))",
    "the alarm": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
    "while True: pass",
    "nothing": "while True: pass",
}


@pytest.mark.parametrize("cell", ENDLESS.values(), ids=ENDLESS)
def test_several_cells_that_never_end_leave_time_for_the_rest(graded, cell):
    cells = [cell.replace("True", f"{n} > 0") for n in range(1, 5)]
    limits = Limits(cell=0.5, whole=7.0, call=0.5, answer=1.0, grace=0.5)
    before = time.monotonic()
    result = graded(*cells, RIGHT, CHECK, limits=limits)
    assert len(result["notes"]) == 4
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert time.monotonic() - before < scale_timeout(9)


def test_points_that_a_student_had_are_kept_when_time_is_over(graded):
    limits = Limits(cell=9.0, whole=2.0, call=0.5, answer=1.0, grace=0.5)
    endless = ENDLESS["every exception"]
    result = graded(RIGHT, CHECK, endless, ATTEND.format("len"), limits=limits)
    found = result["exercises"]
    assert found["check_weights"]["verdict"] == "✓ right"
    assert not found["check_attend"]["points"]


def test_several_attempts_that_never_end_leave_time_for_the_rest(graded):
    body = ENDLESS["every exception"].replace("\n", "\n    ")
    bad = f"def bad(*x):\n    {body}\n"
    cells = [bad, *[ATTEND.format("bad")] * 4]
    limits = Limits(cell=3.0, whole=9.0, call=0.3, answer=2.0, grace=0.5)
    result = graded(*cells, RIGHT, CHECK, limits=limits)
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert read_slug(result, "check_attend") == "too-long"


LOWERED = {
    "a low limit of recursion": "import sys; sys.setrecursionlimit(30)",
    "no files": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "no memory": "import resource\n"
    "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
}


@pytest.mark.parametrize("name", LOWERED)
def test_a_lowered_limit_loses_no_other_points(graded, name):
    body = LOWERED[name].replace("\n", "\n    ")
    bad = f"def bad(*x):\n    {body}\n    return 1\n"
    for cells in (
        (LOWERED[name], RIGHT, CHECK),
        (RIGHT, CHECK, LOWERED[name]),
        (bad, ATTEND.format("bad"), RIGHT, CHECK),
    ):
        assert read_points(graded(*cells))[0] == 1


LONG = {
    "lines without anything": "\n" * 45_000 + "x = 1",
    "lines that ask": "x?\n" * 3000,
    "questions in one line": "x" + "?" * 45_000,
    "percent signs": "%" * 45_000,
    "brackets": "(" * 100_000,
    "minus signs": "x = " + "-" * 100_000 + "1",
    "attributes": "x" + ".x" * 50_000,
    "sums": "x = " + "+".join("1" * 50_000),
    "one long name": "x" * 10_000_000,
    "one long text": "'" + "\\n" * 2_000_000 + "'",
    "strings in strings": "f'{f\"{x}\"}'" * 20_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_cell_that_is_long_to_read_stops_nothing(graded, name):
    before = time.monotonic()
    limits = Limits(whole=20.0, call=1.0, answer=3.0, grace=1.0, memory=1024)
    result = graded(LONG[name], RIGHT, CHECK, limits=limits)
    assert read_points(result)[0] == 1
    assert time.monotonic() - before < scale_timeout(10)
