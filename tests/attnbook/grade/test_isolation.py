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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attnbook.grade import batch, command, files, seccomp
from attnbook.grade.process_limits import Limits
from attnbook.grade.sandbox import open_sandbox
from notebooks import (
    CHECK,
    RIGHT,
    read_points,
    write_notebook,
)

pytestmark = [
    pytest.mark.exact("test_exercises has the verdicts"),
    pytest.mark.precision,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX"),
]


@pytest.fixture(scope="module")
def up():
    """The limits that are in force on this platform."""
    with open_sandbox(Limits()) as opened:
        return opened.limits_set


def needed(up, *names):
    if missing := {*names} - {*up}:
        pytest.skip(f"this platform lacks limits for {', '.join(missing)}")


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
        "from attnbook.grade import batch, files\n"
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


def test_the_environment_of_the_grader_cannot_be_read(graded, up, monkeypatch):
    needed(up, "writing elsewhere")
    read = (
        "found = []\nfor n in __import__('os').listdir('/proc'):\n"
        "    try:\n        found.append(open(f'/proc/{n}/environ').read())\n"
        "    except OSError: pass\n"
        "assert found\nassert not any('GRADER_SECRET' in x for x in found)"
    )
    run = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    given = {**os.environ, "GRADER_SECRET": "1"}
    with subprocess.Popen(run, stdin=subprocess.PIPE, env=given) as other:
        found = Path(f"/proc/{other.pid}/environ").read_text()
        assert "GRADER_SECRET" in found
        result = graded(read, RIGHT, CHECK)
        other.communicate()
    assert result["notes"] == []


def test_a_socket_in_the_file_system_cannot_be_reached(graded, up, tmp_path):
    needed(up, "sockets")
    with (
        socket.socket(socket.AF_UNIX) as server,
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
    ):
        place = f"{folder}/s"
        server.bind(place)
        server.listen()
        server.setblocking(False)
        reached = (
            f"import socket\nsocket.socket(socket.AF_UNIX).connect({place!r})"
        )
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


def test_times_and_attributes_of_files_elsewhere_stay(graded, up, tmp_path):
    needed(up, "times and attributes")
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


def test_no_memory_is_held_outside_the_limit(graded, up):
    needed(up, "hidden memory")
    shared = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "found = libc.shmget(0, 1 << 30, 0o1600)\nassert found < 0"
    )
    result = graded("import os; os.memfd_create('x')", shared, RIGHT, CHECK)
    assert [x[:7] for x in result["notes"]] == ["cell 1:"]
    assert read_points(result)[0] == 1


def test_a_kernel_that_can_filter_system_calls_does(up):
    known = Path("/proc/sys/kernel/seccomp/actions_avail").exists()
    if not known or platform.machine() not in seccomp.PROCESSORS:
        pytest.skip("no filter of system calls is known here")
    assert {"sockets", "times and attributes", "hidden memory"} <= {*up}
    assert "network" in up


def test_the_filter_has_one_answer_for_every_call_it_names():
    for processor, pair, refused in seccomp.PROCESSORS.values():
        numbers = [n for each in refused.values() for n in each]
        assert len(numbers) == len({*numbers, pair}) - 1
        raw = seccomp.compile_filter(processor, pair, refused)
        assert len(raw) == 8 * (2 * len(numbers) + 13)


def test_without_namespaces_there_is_no_network_either(up):
    """As in a container, which may not make namespaces."""
    needed(up, "sockets")
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
