"""Grading: code cannot lose the result of another cell or choose a verdict."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import fallible
from attnbook.exercises.outcome import Outcome, are_equal
from attnbook.grade import batch, command, messages, report
from attnbook.grade.notebook_grader import find_exercises, grade
from fallible import length
from notebooks import (
    ATTEND,
    CHECK,
    IMPORT,
    LIMITS,
    RIGHT,
    SHORTER,
    WRONG,
    read_points,
    read_slug,
    write_notebook,
)
from sandbox_limits import GRADING, needs_fork

pytestmark = GRADING

# Every exercise of the chapter counts, also one that was not attempted.
POINTS = sum(x.stars for x in find_exercises(["scaled_dot_product"]).values())


@pytest.fixture(scope="module")
def unpatched(tmp_path_factory):
    """Grade a right and a wrong answer beside a ready-made one, unpatched."""
    folder = tmp_path_factory.mktemp("unpatched")
    return {
        answer: grade(
            write_notebook(folder / f"{i}.ipynb", answer, *READY, CHECK),
            limits=LIMITS,
        )
        for i, answer in enumerate((RIGHT, WRONG))
    }


def test_right_wrong_and_missing_answers_get_different_verdicts(graded):
    result = graded(RIGHT, CHECK, ATTEND.format("lambda *x: None"))
    assert result["error"] is None
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert read_slug(result) is None
    assert read_slug(result, "check_attend") == "none"
    assert result["exercises"]["check_gradient"]["verdict"][0] == "…"
    assert read_points(result) == (1, POINTS)
    assert read_slug(graded(WRONG, CHECK)) == "no-scale"


def test_a_right_answer_with_a_remark_gets_its_points(graded):
    late = RIGHT.replace("query * query.shape[-1] ** -0.5 @ key.mT", "{0}")
    late = late.format("query @ key.mT * query.shape[-1] ** -0.5")
    result = graded(late, CHECK)
    assert read_points(result) == (1, POINTS)
    assert read_slug(result) is None
    verdict = result["exercises"]["check_weights"]["verdict"]
    assert verdict.startswith("✓ right. One more thing: in half precision")


def test_scores_held_in_an_array_count_as_memory(graded):
    result = graded(
        "import numpy as np\nimport torch\n"
        "def answer(chunks):\n"
        "    held = np.concatenate([np.array(x) for x in chunks], -1)\n"
        "    top = held.max(-1)\n"
        "    low = np.where(np.isneginf(top), 0, top).astype(held.dtype)\n"
        "    total = np.exp(held - low[:, None]).sum(-1)\n"
        "    return torch.from_numpy(top), torch.from_numpy(total)",
        "from attnbook.exercises.flash_attention import check_online_softmax\n"
        "check_online_softmax(answer)",
        limits=replace(LIMITS, call=10.0, answer=30.0),
    )
    verdict = result["exercises"]["check_online_softmax"]["verdict"]
    assert "bytes of arrays and lists" in verdict
    assert verdict.startswith("✗")


ABLATE = """
import copy
from attnbook.exercises.reading_heads import check_ablate_head
def answer(model, layer, head):
    new = {0}(model)
    attention = new.blocks[layer].attention
    columns = attention.output.weight.data.chunk(attention.heads, dim=1)
    columns[{1}].zero_()
    return new
check_ablate_head(answer)
"""


@pytest.mark.parametrize(
    ("copied", "chosen", "slug"),
    [
        ("copy.deepcopy", "head", None),
        ("copy.deepcopy", "0", "numbers"),
        ("copy.copy", "head", "changed-in-place"),
    ],
)
def test_a_returned_model_is_graded_by_its_outputs(graded, copied, chosen, slug):
    result = graded(ABLATE.format(copied, chosen))
    assert result["error"] is None
    assert read_slug(result, "check_ablate_head") == slug
    assert bool(result["exercises"]["check_ablate_head"]["points"]) == (slug is None)


def test_an_unsolved_chapter_gets_no_points(graded):
    stub = "def f(*x):\n    raise NotImplementedError\n"
    cells = [IMPORT.format(x) + f"{stub}\ncheck_{x}(f)" for x in ("attend",)]
    result = graded(*cells)
    assert read_points(result) == (0, POINTS)
    assert all(x["mistake"] is None for x in result["exercises"].values())


FAULTS = {
    "raises": "1 / 0",
    "exits": "import sys; sys.exit()",
    "raises what is no Exception": "raise BaseException",
    "interrupts": "raise KeyboardInterrupt",
    "ends the process": "import os; os._exit(0)",
    "kills the process": "import os; os.kill(os.getpid(), 9)",
    "kills its parent": "import os; os.kill(os.getppid(), 9)",
    "stops the process": "import os; os.kill(os.getpid(), 19)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "never ends": "while True: pass",
    "never ends and hears nothing": "while True:\n try:\n  while True: pass\n"
    " except BaseException: pass",
    "never ends in C": "sum(range(10 ** 12))",
    "floods": "while True: print('water')",
    "floods a file": "import os\nwhile True: os.write(1, b'x' * 9999)",
    "fills the disk": "f = open('big', 'wb')\nwhile 1: f.write(bytes(1 << 22))",
    "fills the memory": "x = [bytes(1 << 20)]\nwhile True: x += x",
    "recurses": "def f(): return f()\nf()",
    "closes all files": "import os; os.closerange(0, 200)",
    "writes into all files": "import os\nfor n in range(3, 60):\n try:\n"
    "  os.write(n, b'x' * 100)\n except OSError: pass",
    "sends code": "import gc, multiprocessing.connection as c\n"
    "[x.send(print) for x in gc.get_objects() if isinstance(x, c.Connection)]",
    "is no Python": "def f(:",
    "removes its folder": "import os, shutil; shutil.rmtree(os.getcwd())",
    "reads what is not there": "input()",
    "forgets modules": "import sys; sys.modules.clear()",
}


@needs_fork
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_error_in_one_cell_loses_no_result(graded, fault, capfd):
    cells = fault, RIGHT, CHECK, ATTEND.format("len")
    result = graded(*cells, limits=SHORTER)
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert read_slug(result, "check_attend") == "error"
    assert len(capfd.readouterr().out) < 1000


@needs_fork
@pytest.mark.parametrize("name", FAULTS, ids=FAULTS)
def test_an_error_in_one_answer_loses_only_that_answer(graded, name):
    if name == "is no Python":
        return
    body = FAULTS[name].replace("\n", "\n    ")
    bad = f"def bad(query, key, value, mask):\n    {body}\n"
    cells = bad, ATTEND.format("bad"), RIGHT, CHECK
    result = graded(*cells, limits=SHORTER)
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert not result["exercises"]["check_attend"]["points"]


PATCHES = {
    "the check says right": "import attnbook.exercises.exercise as e\n"
    "e.Exercise.__call__ = lambda *x: True\n"
    "e.Exercise.judge = lambda *x: True",
    "a check of one's own": "class V: mistake = None\ncheck_weights = lambda f: V()",
    "the verdict": "import attnbook.exercises.verdict as v\n"
    "v.Verdict.__bool__ = lambda self: True\n"
    "v.find_difference = lambda *x: None",
    "the runner": "import attnbook.exercises.runner as r\n"
    "r.run = r.run_rounds = r.is_unchanged = lambda *x: None",
    "comparisons": "import torch\ntorch.equal = torch.allclose = "
    "lambda *x, **y: True\ntorch.Tensor.__eq__ = torch.Tensor.eq",
    "differences": "import torch\n"
    "torch.Tensor.__sub__ = lambda a, b: a.mul(0)\n"
    "torch.Tensor.abs = lambda a: a.mul(0)",
    "random numbers": "import torch\ntorch.randn = torch.zeros\ntorch.Generator = None",
    "gradients": "import torch\ntorch.autograd.grad = lambda *x, **y: None\n"
    "torch.Tensor.requires_grad_ = None",
    "copies": "import torch\ntorch.Tensor.clone = lambda self: self",
    "built-ins": "import builtins\nbuiltins.all = builtins.any = "
    "lambda x: True\nbuiltins.isinstance = lambda a, b: True",
    "profiles": "import sys\nsys.setprofile = lambda f: None",
    "torch modes": "import torch.overrides as o\n"
    "o.TorchFunctionMode.__enter__ = lambda self: self",
    "the messages": "import json\njson.dumps = lambda x: '{}'",
}
READY = (
    "from torch.nn import functional\ndef ready(q, k, v, mask):\n"
    "    return functional.scaled_dot_product_attention(q, k, v, mask)\n"
    + IMPORT.format("attend"),
    "check_attend(ready)",
)
INPLACE = RIGHT.replace("return", "query.mul_(2); return").replace("-0.5", "0")


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_a_patch_changes_no_verdict(graded, unpatched, patch):
    for answer in (RIGHT, WRONG):
        patched = graded(patch, answer, *READY, CHECK)
        assert patched["exercises"] == unpatched[answer]["exercises"]
    assert read_slug(patched, "check_attend") == "ready-made"


def test_a_patched_comparison_hides_no_changed_input(graded):
    lies = (
        "import torch\ndef my_weights(query, key):\n"
        "    w = (query * query.shape[-1] ** -0.5 @ key.mT).softmax(-1)\n"
        "    query.data.mul_(2)\n"
        "    torch.Tensor.__eq__ = lambda a, b: torch.ones_like(a).bool()\n"
        "    return w\n"
    )
    assert read_slug(graded(lies, CHECK)) == "changed-input"


@pytest.mark.parametrize(
    "answer",
    [
        "from attnbook.attention.scaled_dot_product import attend\nanswer = attend",
        "import attnbook.attention.scaled_dot_product as a\n"
        "def answer(q, k, v, mask):\n    return a.attend(q, k, v, mask)",
        "import torch.nn.functional as F\n"
        "answer = getattr(F, 'scaled_dot_product_attention')",
        "import sys, torch.nn.functional as F\n"
        "def answer(q, k, v, m):\n    sys.setprofile(None)\n"
        "    return F.scaled_dot_product_attention(q, k, v, m)",
    ],
)
def test_a_ready_made_attention_is_refused(graded, answer):
    result = graded(answer, ATTEND.format("answer"))
    assert read_slug(result, "check_attend") == "ready-made"


@pytest.mark.parametrize(
    "steal",
    [
        "from attnbook.exercises.scaled_dot_product import check_weights as c\n"
        "my_weights = c.solution",
        "from attnbook.exercises.scaled_dot_product.weights import weights\n"
        "my_weights = weights",
        "from attnbook.grade import notebook_grader\n"
        "my_weights = notebook_grader.grade",
    ],
)
def test_the_solutions_are_not_available(graded, steal):
    assert not read_points(graded(steal, CHECK))[0]


def test_there_is_no_network_and_no_writing_elsewhere(graded, tmp_path):
    away = tmp_path / "elsewhere"
    tried = (
        "import socket\ntry:\n"
        "    socket.create_connection(('127.0.0.1', 9), 2)\n"
        "except ConnectionRefusedError:\n    raise\n"
        "except OSError: went = False\n"
        "assert not went"
    )
    result = graded(tried, f"open({str(away)!r}, 'w').write('x')", CHECK)
    assert result["notes"][0].startswith("cell 2") or sys.platform != "linux"
    assert not away.exists() or sys.platform != "linux"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a notebook"),
        ("[]", "not a notebook"),
        ("{}", "not a notebook"),
    ],
)
def test_a_file_that_is_not_a_notebook_is_named(tmp_path, text, message):
    path = tmp_path / "x.ipynb"
    path.write_text(text)
    assert message in grade(path)["error"]
    assert "cannot be read" in grade(tmp_path / "none.ipynb")["error"]
    assert "no check" in grade(write_notebook(path, "1 + 1"))["error"]


@pytest.mark.parametrize("dtype", messages.DTYPES.values(), ids=messages.DTYPES)
def test_numbers_arrive_as_they_were_sent(dtype):
    for shape in ((2, 3), (), (0, 5)):
        x = (torch.randn(shape) * 3).to(dtype)
        sent = json.loads(json.dumps(messages.pack(x)))
        assert are_equal((x,), (messages.unpack(sent),))


def test_an_outcome_arrives_and_malformed_ones_are_refused():
    x = torch.tensor([1.0, float("nan"), -torch.inf])
    outcome = Outcome("a tensor", (x,), (x,), (0,), (1,), ("f",), ("g",), "", "E")
    told = json.loads(json.dumps(messages.pack_outcome(outcome)))
    assert repr(messages.unpack_outcome(told)) == repr(outcome)
    for name, bad in (
        ("form", 3),
        ("output", [{"dtype": "float32"}]),
        ("floating", ["0"]),
        ("attempted", 1),
        ("error", []),
        ("gradients", [[]]),
        ("output", [{"dtype": "float32", "shape": [9], "bytes": "AAAA"}]),
        ("output", [{"dtype": "object", "shape": [], "bytes": ""}]),
    ):
        with pytest.raises((ValueError, TypeError)):
            messages.unpack_outcome({**told, name: bad})
    with pytest.raises(ValueError, match="parts"):
        messages.unpack_outcome({})


# Many notebooks.


def test_a_killed_worker_loses_only_the_notebook_that_kills_it(tmp_path):
    paths = [tmp_path / name for name in ("a", "kills", "once", "bb", "ccc")]
    found = dict(batch.grade_in_pool(paths, 2, length))
    assert found.keys() == {*paths}
    assert found[paths[1]]["error"].startswith("the grader failed")
    assert [found[paths[i]]["n"] for i in (0, 2, 3, 4)] == [1, 4, 2, 3]


@needs_fork
def test_the_processes_of_a_command_that_is_killed_end_too(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    command = [sys.executable, fallible.__file__, *map(str, paths)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as killed:
        ends = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < ends:
            time.sleep(0.02)
        killed.kill()
        began = time.monotonic()
        assert killed.stdout.read() == b""  # read to its end: all have ended
        assert time.monotonic() - began < 30
    assert len(list(tmp_path.iterdir())) < len(paths)


def test_it_resumes_where_it_was_interrupted(tmp_path):
    paths = [write_notebook(tmp_path / f"{n}.ipynb", f"n = {n}") for n in range(5)]
    kept = tmp_path / "kept"
    run = partial(batch.grade_in_pool, workers=1, task=length)
    started = batch.grade_all(paths, batch.Journal(kept, 0), run)
    before = [next(started) for _ in range(3)]
    started.close()
    kept.write_text(kept.read_text() + '["torn", {"err')
    (tmp_path / "kills").touch()
    journal = batch.Journal(kept, 0)
    assert len(journal.known) >= 3
    after = list(batch.grade_all(paths, journal, run))
    assert [path for path, _ in after[:3]] == [path for path, _ in before]
    assert {path for path, _ in after} == {*paths}
    assert not batch.Journal(kept, 1).known.keys() & {
        batch.Journal(kept, 1).key(p) for p in paths
    }


def test_what_a_journal_holds_survives_an_end_after_any_byte(tmp_path):
    kept = tmp_path / "kept"
    for n in range(3):
        batch.Journal(kept, 0).keep(f"key {n}", {"error": "é\ud800", "n": n})
    whole = kept.read_bytes()
    lines = [line for line in whole.split(b"\n") if line]
    for end in range(len(whole) + 1):
        kept.write_bytes(whole[:end])
        full = sum(line in whole[:end] for line in lines)
        assert len(batch.Journal(kept, 0).known) == full
        batch.Journal(kept, 0).keep("later", {"n": 3})
        assert len(batch.Journal(kept, 0).known) == full + 1


def test_the_command_writes_the_same_bytes_every_time(tmp_path, capsys):
    paths = [
        write_notebook(tmp_path / "b.ipynb", RIGHT, CHECK),
        write_notebook(tmp_path / "a.ipynb", WRONG, CHECK),
        Path(tmp_path / "=broken.ipynb"),
    ]
    paths[2].write_text("{")
    written_files = []
    for order, workers in ((paths, "1"), (paths[::-1], "2")):
        files = tmp_path / "o.csv", tmp_path / "o.json"
        words = [*map(str, order), "--workers", workers]
        words += ["--csv", str(files[0]), "--json", str(files[1])]
        assert command.main(words) == 0
        written_files.append([file.read_text("utf8") for file in files])
    assert written_files[0] == written_files[1]
    table = list(csv.DictReader(io.StringIO(written_files[0][0])))
    assert [row["points"] for row in table] == ["0", "0", "1"]
    assert table[1]["check_weights mistake"] == "no-scale"
    assert not list(tmp_path.glob("*.unfinished"))
    assert f"1 of {POINTS} (" in capsys.readouterr().out


def test_no_cell_of_a_spreadsheet_is_a_formula():
    assert report.escape_formula("=1+1") == "'=1+1"
