"""Notebooks that are written to fool the grader, or to harm it.

Each attack precedes a right answer and a wrong one, whose verdicts must be the
same as without it. Tests that need a limit of the platform are skipped without.
Code that keeps sending messages may lose its own answer, and earns no points.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnbook.grade import batch, command, fork_server, messages
from attnbook.grade.process_limits import Limits
from attnbook.grade.sandbox import GoneError, open_sandbox, scale_timeout
from notebooks import (
    ATTEND,
    CHECK,
    LIMITS,
    RIGHT,
    SHORTER,
    WRONG,
    read_points,
    read_slug,
    write_notebook,
)
from sandbox_limits import IN_SANDBOX, require_limits

pytestmark = IN_SANDBOX
SOCKETS = """
import gc, socket, struct
gc.unfreeze()
def send(raw):
    for x in gc.get_objects():
        try:
            if isinstance(x, socket.socket):
                x.sendall(struct.pack("!I", len(raw)) + raw)
        except OSError:
            pass
"""
FORGED = (
    "{'rounds': [[{'form': 'a tensor', 'output': [{'dtype': 'float32', "
    "'shape': [2 ** 70], 'bytes': ''}], 'gradients': [], 'floating': [], "
    "'changed': [99], 'used': [], 'library': [], 'stopped': '', 'error': None, "
    "'attempted': True}] * 5] * 3, 'left': [None] * 15}"
)
FORGE = (
    "    import sys, json, os, struct\n    f = sys._getframe()\n"
    "    while not hasattr(f.f_locals.get('self'), 'memory'):\n"
    "        f = f.f_back\n    memory = f.f_locals['self'].memory\n"
    f"    told = json.dumps({{'trials': [{FORGED}] * 2}}).encode()\n"
    "    memory[:8 + len(told)] = struct.pack('!Q', len(told)) + told\n"
    "    os._exit(0)\n"
)
HIDDEN = "import torch.nn.functional as F\nname = 'scaled_dot_' + 'product_'\n"
BLIND = (
    "    import sys\n    f = sys._getframe(1)\n"
    "    while 'guard' not in f.f_locals:\n        f = f.f_back\n"
    "    f.f_locals['guard'].forbidden = frozenset()\n"
)

# What an attack is, its cells, and the slug that its own exercise gets.
ATTACKS = {
    "half a message, then silence": (
        "import os, time\nfor n in range(3, 60):\n try:\n"
        "  os.write(n, bytes([0, 0, 1, 0]) + b'x')\n except OSError: pass\n"
        "time.sleep(1e6)",
    ),
    "an answer sent ahead": (
        SOCKETS + "send(b'{\"error\": null}')\nsend(b'{\"trials\": []}')",
    ),
    "a thread that keeps patching": (
        "import threading, torch\ndef go():\n while True:\n"
        "  torch.equal = torch.allclose = lambda *x, **y: True\n"
        "  torch.Tensor.__eq__ = lambda a, b: True\n"
        "  torch.Tensor.clone = torch.Tensor.detach = lambda x: x\n"
        "threading.Thread(target=go, daemon=True).start()",
    ),
    "atexit and weak references": (
        "import atexit, weakref, os\natexit.register(os._exit, 0)\n"
        "class A: pass\na = A()\nweakref.finalize(a, os._exit, 0)",
    ),
    "the checker, found by gc": (
        "import gc, types\ngc.unfreeze()\nfor m in gc.get_objects():\n"
        " if isinstance(m, types.ModuleType) and 'attnbook' in m.__name__:\n"
        "  for n in ('find_difference', 'judge', 'is_same_outcome',"
        " 'is_unchanged', 'are_equal'):\n"
        "   if hasattr(m, n): setattr(m, n, lambda *x, **y: None)",
    ),
    "garbage for the alarm": (
        "import signal\nsignal.signal = lambda *x: None\n"
        "signal.setitimer = lambda *x: (0, 0)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))",
    ),
    "half a character": ("raise ValueError(chr(0xd800))",),
    "an error of a megabyte": ("raise ValueError('x' * 2 ** 20)",),
    "a number beyond all bounds, where outcomes are left": (
        f"def bad(*x):\n{FORGE}",
        ATTEND.format("bad"),
        "tampered",
    ),
    "outcomes of too many bytes, where outcomes are left": (
        f"def bad(*x):\n{FORGE}".replace("len(told)) +", "1 << 40) +"),
        ATTEND.format("bad"),
        "error",
    ),
    "an attempt that is handed over by nobody, with the right mark": (
        SOCKETS + "import sys\nf = sys._getframe()\n"
        "while 'student' not in f.f_locals:\n    f = f.f_back\n"
        "mark = f.f_locals['student'].mark\n"
        "for check in 'scaled_dot_product.check_attend', 'x.y', 3, 'a' * 999:\n"
        "    send(mark + __import__('json').dumps({'check': check}).encode())",
    ),
    "the guard, disabled through its frame": (
        f"{HIDDEN}def bad(*x):\n{BLIND}    return getattr(F, name + 'attention')(*x)\n",
        ATTEND.format("bad"),
        "error",
    ),
    "a kernel that the guard does not know": (
        f"import torch\n{HIDDEN}def bad(*x):\n"
        "    ready = getattr(torch, f'_{name}attention_math')\n"
        "    return ready(*x)[0].nan_to_num(0.0)\n",
        ATTEND.format("bad"),
        ("ready-made", "error"),
    ),
    "the kernel, traced beforehand": (
        f"import torch\n{HIDDEN}ready = getattr(F, name + 'attention')\n"
        "x = torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)\n"
        "y = *x, torch.ones(2, 2).bool()\n"
        "a, b = torch.jit.trace(ready, x), torch.jit.trace(ready, y)\n"
        "def bad(q, k, v, m):\n"
        "    return a(q, k, v) if m is None else b(q, k, v, m)\n",
        ATTEND.format("bad"),
        ("ready-made", "error"),
    ),
    "a tensor that says it equals everything": (
        "import torch\nclass T(torch.Tensor):\n @classmethod\n"
        " def __torch_function__(c, f, t, a=(), k=None):\n"
        "  if f.__name__ in ('detach', 'cpu', 'clone'): return a[0]\n"
        "  if 'eq' in f.__name__: return torch.ones(()).bool()\n"
        "  return super().__torch_function__(f, t, a, k or {})\n"
        "def bad(q, k, v, m): return (q @ k.mT @ v).as_subclass(T)\n",
        ATTEND.format("bad"),
        "numbers",
    ),
    "an input that claims to be unchanged": (
        "import torch\nclass T(torch.Tensor):\n @classmethod\n"
        " def __torch_function__(c, f, t, a=(), k=None):\n"
        "  if f.__name__ == 'detach': return torch.Tensor.add(kept, 0)\n"
        "  return super().__torch_function__(f, t, a, k or {})\n"
        "def bad(q, k, v, m):\n    global kept\n    kept = v.detach().clone()\n"
        "    s = q / q.shape[-1] ** 0.5 @ k.mT\n"
        "    if m is not None: s = s.masked_fill(~m, -torch.inf)\n"
        "    out = s.softmax(-1).nan_to_num(0.0) @ v\n"
        "    v.data.mul_(2); v.__class__ = T\n    return out\n",
        ATTEND.format("bad"),
        "changed-input",
    ),
}


def test_messages_sent_beside_an_answer_earn_no_points(graded):
    talk = (
        "import threading, time\ndef go():\n while True:\n"
        "  send(b'{\"error\": null}'); time.sleep(0.01)\n"
        "threading.Thread(target=go, daemon=True).start()"
    )
    result = graded(SOCKETS + talk, WRONG, CHECK)
    assert result["error"] is None
    assert not read_points(result)[0]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_changes_no_verdict(graded, name):
    attack, *own = ATTACKS[name]
    cells = [attack, ATTEND.format("bad")] if own else [attack]
    limits = LIMITS if own else SHORTER
    for answer, most in (RIGHT, 1), (WRONG, 0):
        result = graded(*cells, answer, CHECK, limits=limits)
        assert result["error"] is None
        assert result["exercises"]["check_weights"]["points"] == most
        assert read_slug(result) == (None if most else "no-scale")
        json.dumps(result)
        assert len(str(result)) < 5000
        if own:
            wanted = own[1] if isinstance(own[1], tuple) else own[1:]
            assert read_slug(result, "check_attend") in wanted


def test_files_elsewhere_are_neither_written_nor_truncated(
    graded, tmp_path, limits_set
):
    require_limits(limits_set, "writing elsewhere")
    victim = tmp_path / "points.csv"
    victim.write_text("kept")
    result = graded(
        f"open({str(victim)!r}, 'w')",
        f"import os; os.truncate({str(victim)!r}, 0)",
        f"import os; os.remove({str(victim)!r})",
        f"import os; os.rename({str(victim)!r}, 'mine')",
        f"import os; os.link({str(victim)!r}, 'mine')",
        RIGHT,
        CHECK,
    )
    assert len(result["notes"]) == 5
    assert victim.read_text() == "kept"


def test_other_processes_cannot_be_killed(graded, limits_set):
    require_limits(limits_set, "signals to others")
    found = graded(
        "import os\nfound = []\nfor name in os.listdir('/proc'):\n"
        " if name.isdigit() and int(name) != os.getpid():\n"
        "  try: os.kill(int(name), 0); found.append(name)\n"
        "  except OSError: pass\nassert not found, found",
        "import os; os.kill(-1, 0)",
        CHECK,
    )
    assert all("ProcessLookupError" in note for note in found["notes"][:1])


def test_processes_that_a_notebook_leaves_behind_are_killed(graded):
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    said = f"0.{os.getpid()}"
    graded(
        "import os\nif not os.fork():\n os.setsid()\n if not os.fork():\n"
        f"  os.execvp('sleep', ['sleep', '98765', {said!r}])\n os._exit(0)",
        RIGHT,
        CHECK,
    )
    lines = [x.read_bytes() for x in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [x for x in lines if said.encode() in x and b"98765" in x]


def test_a_fork_bomb_is_limited():
    """As an ordinary user, because root's processes are not counted."""
    bomb = (
        "import os, sys, time\n"
        "from attnbook.grade.process_limits import Limits, apply_limits\n"
        "os.getuid() or os.setuid(65534)\n"
        "up = apply_limits('/', Limits(processes=20))\n"
        "if 'number of processes' not in up: sys.exit('no limit')\n"
        "for count in range(40):\n"
        " try:\n  if not os.fork(): time.sleep(60)\n"
        " except BlockingIOError: break\n"
        "os.write(1, str(count).encode())\nos._exit(0)"
    )
    found = subprocess.run(
        [sys.executable, "-c", bomb], capture_output=True, timeout=50
    )
    if b"no limit" in found.stderr:
        pytest.skip("processes cannot be counted here")
    assert int(found.stdout) < 20, found.stderr


def test_a_killed_fork_server_is_replaced(graded):
    right = graded(RIGHT, CHECK)
    before = fork_server.get_fork_server().process
    before.kill()
    assert graded(RIGHT, CHECK) == right
    assert fork_server.get_fork_server().process is not before


def test_the_process_of_many_slow_cells_ends_in_time(tmp_path):
    from attnbook.grade.notebook_grader import grade

    path = write_notebook(tmp_path / "x.ipynb", *["import time; time.sleep(0.5)"] * 999)
    cells = json.loads(path.read_text())
    cells["cells"].append({"cell_type": "code", "source": CHECK})
    path.write_text(json.dumps(cells))
    before = time.monotonic()
    most = Limits(whole=2.0)
    result = grade(path, limits=most)
    assert read_slug(result) in ("never-ran", None)
    assert time.monotonic() - before < 15 * scale_timeout(most.whole)


BROKEN = {
    "deep": "[" * 100_000,
    "half a character": '{"cells": [{"cell_type": "code", "source": "\\ud800"}]}',
    "a number of many digits": f'{{"cells": {"9" * 5000}}}',
    "cells of another kind": '{"cells": [1, null, {"cell_type": "code"}]}',
}


def test_a_broken_file_does_not_stop_the_others(tmp_path, capsys):
    odd = tmp_path / "a\udcff.ipynb"  # a name that is no UTF-8
    good = tmp_path / "z.ipynb"
    for path in odd, good:
        write_notebook(path, "raise ValueError(chr(0xd800))", RIGHT, CHECK)
    bad = [tmp_path / f"broken {name}.ipynb" for name in BROKEN]
    for path, text in zip(bad, BROKEN.values(), strict=True):
        path.write_text(text)
    kept = tmp_path / "o.json"
    words = [*map(str, (odd, *bad, good)), "--workers", "1"]
    assert command.main([*words, "--json", str(kept)]) == 0
    found = json.loads(kept.read_text("utf8"))
    assert [x["points"] for x in found] == [1, 0, 0, 0, 0, 1]
    assert all(x["error"] for x in found[1:-1])


def test_an_error_of_the_grader_is_a_result(tmp_path, monkeypatch):
    from attnbook.grade import notebook_grader

    def fails(*args):
        raise ZeroDivisionError

    monkeypatch.setattr(notebook_grader, "grade", fails)
    found = batch.grade_one(tmp_path, 0, Limits())
    assert "the grader failed" in found["error"]


def test_a_message_must_be_complete_in_time_and_have_the_mark_of_its_request():
    ours, theirs = socket.socketpair()
    theirs.sendall(messages.LENGTH.pack(9) + b"half")
    with pytest.raises(TimeoutError):
        messages.receive(ours, 0.1)
    ours, theirs = socket.socketpair()
    theirs.sendall(messages.LENGTH.pack(messages.LARGEST + 1))
    with pytest.raises(ValueError, match="at most"):
        messages.receive(ours, 0.1)
    with open_sandbox(Limits()) as opened:
        opened.channel, theirs = socket.socketpair()
        messages.send(theirs, b"mark" + b"{}")
        assert opened.receive(0.1, b"mark") == {}
        messages.send(theirs, b"sent ahead{}")
        messages.send(theirs, b'mark{"a": 1}')
        assert opened.receive(0.1, b"mark") == {"a": 1}
        theirs.sendall(b"no length at all")
        with pytest.raises(GoneError, match="socket"):
            opened.receive(0.1, b"mark")
