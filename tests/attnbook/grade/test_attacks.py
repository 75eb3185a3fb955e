"""What a notebook can try: no fault or trick costs others, or earns points."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnbook.grade import command
from notebooks import (
    ATTEND,
    CHECK,
    IMPORT,
    LIMITS,
    RIGHT,
    WRONG,
    read_points,
    read_slug,
    write_notebook,
)

pytestmark = pytest.mark.precision

NOBODY = 65534
FAULTS = {
    "ends the process": "import os; os._exit(0)",
    "kills everything": "import os; os.kill(-1, 9)",
    "stops the process": "import os; os.kill(os.getpid(), 19)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "never ends and hears nothing": "while True:\n try:\n  while True: pass\n"
    " except BaseException: pass",
    "never ends in C": "sum(range(10 ** 12))",
    "fills the disk": "f = open('big', 'wb')\nwhile 1: f.write(bytes(1 << 22))",
    "fills the memory": "x = [bytes(1 << 20)]\nwhile True: x += x",
    "closes all files": "import os; os.closerange(0, 200)",
    "half a message, then silence": "import os, time\nfor n in range(3, 60):\n"
    " try: os.write(n, bytes([0, 0, 1, 0]) + b'x')\n except OSError: pass\n"
    "time.sleep(1e6)",
    "no alarms": "import signal\nsignal.setitimer = signal.signal = print\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nwhile True: pass",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_error_in_one_cell_loses_no_result(graded, fault):
    result = graded(fault, RIGHT, CHECK, ATTEND.format("len"))
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert read_slug(result, "check_attend") == "error"
    assert len(str(result)) < 5000


ANSWERED = "kills everything", "crashes", "never ends in C", "fills the memory"


@pytest.mark.parametrize("name", ANSWERED)
def test_an_error_in_one_answer_loses_only_that_answer(graded, name):
    body = FAULTS[name].replace("\n", "\n    ")
    bad = f"def bad(query, key, value, mask):\n    {body}\n"
    result = graded(bad, ATTEND.format("bad"), RIGHT, CHECK)
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert not result["exercises"]["check_attend"]["points"]


PATCHES = {
    "the check says right": "import attnbook.exercises.declare as e\n"
    "e.Exercise.__call__ = e.Exercise.judge = lambda *x: True\n"
    "e.Exercise.run_attempt = lambda self, attempt, seeds: ()",
    "comparisons": "import torch\ntorch.equal = torch.allclose = "
    "lambda *x, **y: True\ntorch.Tensor.__eq__ = torch.Tensor.eq",
    "built-ins": "import builtins\nbuiltins.all = builtins.any = lambda x: True",
    "a thread that keeps patching": "import threading, torch\ndef go():\n"
    " while True: torch.equal = torch.allclose = lambda *x, **y: True\n"
    "threading.Thread(target=go, daemon=True).start()",
    "defaults": "import torch\ntorch.set_default_dtype(torch.float64)\n"
    "torch.set_default_device('meta')\ntorch.set_grad_enabled(False)\n"
    "torch.manual_seed(3); torch.set_num_threads(3)\n"
    "torch.autocast('cpu').__enter__()",
}


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_a_patch_changes_no_verdict(graded, patch):
    wrong = WRONG.replace("my_weights", "wrong")
    cells = patch, RIGHT, CHECK, wrong, ATTEND.format("wrong")
    result = graded(*cells)
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert not result["exercises"]["check_attend"]["points"]
    assert read_slug(graded(patch, WRONG, CHECK)) == "no-scale"


FORGED = {
    "a verdict": '\'{"verdict": "✓ right"}\'.encode()',
    "code": "b'done\\0' + __import__('pickle').dumps(print)",
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_result_earns_nothing(graded, forged):
    send = (
        "import os, struct\ndef send(*x):\n"
        f"    raw = {forged}\n    raw = struct.pack('!i', len(raw)) + raw\n"
        "    for n in range(3, 60):\n        try: os.write(n, raw)\n"
        "        except OSError: pass\n    os._exit(0)\n"
    )
    result = graded(send, ATTEND.format("send"), RIGHT, CHECK)
    assert read_slug(result, "check_attend") in ("tampered", "error")
    assert read_points(result)[0] == 1
    assert read_points(graded(send, "send()", ATTEND.format("len")))[0] == 0


def test_a_fork_bomb_is_limited():
    """As an ordinary user, because root's processes are not counted."""
    bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    raw = write_notebook(None, bomb, RIGHT, CHECK)
    code = (
        "import os, tempfile\nfrom attnbook.grade import judge, preload, sandbox\n"
        f"os.getuid() or os.setuid({NOBODY})\n"
        "limits = sandbox.Limits(cell=1.0, grace=1.0, processes=20)\n"
        "folder = tempfile.mkdtemp()\n"
        f"result = judge.Judge({raw!r}, None, 0, limits, folder).grade()\n"
        "sandbox.remove_folder(folder)\n"
        "assert result['exercises']['check_weights']['points'] == 1, result\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_the_solution_and_the_library_are_no_answers(graded):
    solution = IMPORT.format("attend") + "check_attend(check_attend.solution)"
    library = (
        "from attnbook.attention.scaled_dot_product import attend\n"
        + ATTEND.format("attend")
    )
    torch = "import torch.nn.functional as F\n" + ATTEND.format(
        "F.scaled_dot_product_attention"
    )
    for cell in solution, library, torch:
        assert read_slug(graded(cell), "check_attend") == "ready-made"


def test_files_elsewhere_stay(graded, tmp_path, isolated):
    victim = tmp_path / "points.csv"
    victim.write_text("kept")
    victim.chmod(0o600)
    before = victim.stat()
    name = repr(str(victim))
    result = graded(
        f"open({name}, 'w')",
        f"import os; os.truncate({name}, 0)",
        f"import os; os.remove({name})",
        f"import os; os.link({name}, 'mine')",
        f"import os; os.chmod({name}, 0o777)",
        RIGHT,
        CHECK,
    )
    after = victim.stat()
    assert victim.read_text() == "kept"
    assert (after.st_mtime_ns, after.st_mode) == (before.st_mtime_ns, before.st_mode)
    assert [note[:7] for note in result["notes"]] == [f"cell {n}:" for n in range(1, 5)]


def test_there_are_no_other_processes_no_network_and_no_secrets(graded, isolated):
    assert "PYTEST_CURRENT_TEST" in os.environ  # plays a secret of the teacher
    result = graded(
        "import os; assert 'PYTEST_CURRENT_TEST' not in os.environ",
        "import os\nfound = []\nfor name in os.listdir('/proc'):\n"
        " if name.isdigit() and int(name) != os.getpid():\n"
        "  try: os.kill(int(name), 0); found.append(name)\n"
        "  except OSError: pass\nassert not found, found",
        "import socket\nfor family in socket.AddressFamily:\n"
        " try: socket.socket(family)\n except PermissionError: continue\n"
        " assert False, family",
        RIGHT,
        CHECK,
    )
    assert (result["error"], result["notes"]) == (None, [])


def test_processes_that_a_notebook_leaves_behind_are_killed(graded):
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    said = f"0.{os.getpid()}"
    leave = (
        "import os\nif not os.fork():\n os.setsid()\n if not os.fork():\n"
        f"  os.execvp('sleep', ['sleep', '98765', {said!r}])\n os._exit(0)"
    )
    body = leave.replace("\n", "\n    ")
    graded(leave, f"def bad(*x):\n    {body}", ATTEND.format("bad"), RIGHT, CHECK)
    lines = [x.read_bytes() for x in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [x for x in lines if said.encode() in x and b"98765" in x]


def test_without_namespaces_strays_are_killed_too(tmp_path):
    """As in a container, which may not make namespaces."""
    code = (
        "import sys, os\nfrom attnbook.grade import judge, sandbox\n"
        "real = sandbox.call_kernel\n"
        "sandbox.call_kernel = lambda name, *x: -1 if name == 'unshare'"
        " else real(name, *x)\n"
        f"raw = open({str(tmp_path / 'x.ipynb')!r}, 'rb').read()\n"
        f"mine = judge.Judge(raw, None, 0, sandbox.Limits(), {str(tmp_path)!r})\n"
        "result = mine.grade()\n"
        "assert not mine.first\n"
        "assert result['exercises']['check_weights']['points'] == 1, result\n"
        "assert not sandbox.list_children(os.getpid())\n"
    )
    leave = (
        "import os\nif not os.fork():\n os.setsid()\n os.fork()\n"
        " os.execvp('sleep', ['sleep', '98765'])"
    )
    write_notebook(tmp_path / "x.ipynb", leave, RIGHT, CHECK)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_points_are_kept_when_the_time_is_over(graded):
    limits = replace(LIMITS, cell=900.0, whole=2.0)
    result = graded(RIGHT, CHECK, "while True: pass", CHECK, limits=limits)
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    late = graded("import time; time.sleep(900)", RIGHT, CHECK, limits=limits)
    assert (
        "time for the whole notebook" in late["exercises"]["check_weights"]["verdict"]
    )


def test_an_odd_file_does_not_stop_the_others(tmp_path, capsys):
    endless, huge, deep, odd = (
        tmp_path / f"{name}.ipynb" for name in [*"abc", "g\udcff"]
    )
    endless.symlink_to("/dev/zero")
    with huge.open("wb") as file:
        file.truncate(100 * 2**30)
    deep.write_text("[" * 100_000)
    write_notebook(odd, "raise ValueError(chr(0xd800))", RIGHT, CHECK)
    kept = tmp_path / "all.csv"
    assert command.main([str(tmp_path), "--workers", "2", "--csv", str(kept)]) == 0
    rows = [line.split(",")[1:4] for line in kept.read_text().splitlines()[1:]]
    assert [row[2] for row in rows] == [
        "it is not a regular file",
        "it is larger than 64 MB",
        "it is not a notebook",
        "",
    ]
    assert [row[0] for row in rows] == ["0"] * 3 + ["1"]
