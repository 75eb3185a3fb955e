"""Honest work counts, however it is written; the command, its files, resuming."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from attnbook.grade import Limits, command, grade_notebook, pool, report
from attnbook.grade.notebook import list_exercises
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
CHAPTER = "attnbook.exercises.scaled_dot_product"
# Every exercise of the chapter counts, also one that was not attempted.
POINTS = sum(x.stars for x in list_exercises(["scaled_dot_product"]).values())


def test_right_wrong_and_missing_answers_get_different_verdicts(graded):
    result = graded(RIGHT, CHECK, ATTEND.format("lambda *x: print()"))
    assert (result["error"], result["notes"]) == (None, [])
    assert result["exercises"]["check_weights"]["verdict"] == "✓ right"
    assert read_slug(result) is None
    assert read_slug(result, "check_attend") == "none"
    assert result["exercises"]["check_score_kind"]["verdict"] == "… not attempted yet"
    assert read_points(result) == (1, POINTS)
    assert read_slug(graded(WRONG, CHECK)) == "no-scale"
    number = graded(IMPORT.format("weights") + "check_weights(3)")
    assert read_slug(number) == "not-a-function"


# Cells after a right answer, that check it.
WAYS = {
    "by keyword": IMPORT.format("weights") + "check_weights(attempt=my_weights)",
    "the chapter": "from attnbook.exercises import scaled_dot_product as s\n"
    "s.check_weights(my_weights)",
    "a loop": f"from {CHAPTER} import check_weights, check_attend\n"
    "for check, mine in [(check_attend, len), (check_weights, my_weights)]:\n"
    "    print(check(mine))",
    "%%time": "%%time\n" + CHECK,
    "%%capture, used": f"%%capture out\n{CHECK}\nprint(out)",
    "%time, assigned": IMPORT.format("weights")
    + "verdict = %time check_weights(my_weights)\nassert verdict",
    "prompts": "".join(f">>> {x}\n" for x in CHECK.splitlines()),
    "shell and help": "!pip install torch\nfiles = !ls\nlen(files)\n"
    f"%matplotlib inline\nlen?\n{CHECK};",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_of_calling_a_check_is_graded(graded, way):
    result = graded(RIGHT, way)
    assert (result["error"], result["notes"]) == (None, [])
    assert result["exercises"]["check_weights"]["points"] == 1


# Answers that refer to what a notebook holds, before `my_weights`.
ANSWERS = {
    "a class": "import torch\nclass Weights(torch.nn.Module):\n"
    "    def forward(self, q, k):\n"
    "        return (q * q.shape[-1] ** -0.5 @ k.mT).softmax(-1)\n"
    "my_weights = Weights()",
    "a cached helper": "import functools\n@functools.cache\ndef scale(d):\n"
    "    return d ** -0.5\n" + RIGHT.replace("query.shape[-1] ** -0.5", "scale({0})"),
    "a gradient of one's own": "import torch\n"
    "class Softmax(torch.autograd.Function):\n"
    "    @staticmethod\n    def forward(ctx, x):\n"
    "        y = x.softmax(-1)\n        ctx.save_for_backward(y)\n        return y\n"
    "    @staticmethod\n    def backward(ctx, g):\n        y, = ctx.saved_tensors\n"
    "        return y * (g - (g * y).sum(-1, keepdim=True))\n"
    "def my_weights(q, k): return Softmax.apply(q * q.shape[-1] ** -0.5 @ k.mT)",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_takes_along_what_it_refers_to(graded, name):
    result = graded(ANSWERS[name].replace("{0}", "query.shape[-1]"), CHECK)
    assert read_points(result)[0] == 1, result["exercises"]["check_weights"]


def test_an_answer_is_judged_as_it_was_when_its_check_ran(graded):
    helper = (
        "def scale(query):\n    return query.shape[-1] ** -0.5\n"
        "def my_weights(query, key):\n"
        "    return (query * scale(query) @ key.mT).softmax(-1)\n"
    )
    later = "def scale(query):\n    return 1.0\n"
    assert read_points(graded(helper, CHECK, later))[0] == 1
    assert read_points(graded(f"{helper}{CHECK}\n{later}"))[0] == 1
    assert read_slug(graded(f"{helper}{later}", CHECK, helper)) == "no-scale"


def test_the_last_answer_counts_and_a_stub_takes_nothing_back(graded):
    stub = "def my_weights(*x):\n    raise NotImplementedError\n"
    assert read_points(graded(WRONG, CHECK, RIGHT, CHECK))[0] == 1
    assert read_slug(graded(RIGHT, CHECK, WRONG, CHECK)) == "no-scale"
    assert read_points(graded(RIGHT, CHECK, stub, CHECK))[0] == 1
    empty = graded(stub, CHECK)
    assert (read_slug(empty), read_points(empty)) == (None, (0, POINTS))


def test_an_answer_changes_nothing_that_later_cells_see(graded):
    ends = (
        "import os, torch\ncount = 0\n"
        "def bad(*x):\n    global count\n    count += 1\n"
        "    torch.Tensor.mine = 1\n    os._exit(0)\n"
    )
    look = "assert count == 0\nassert not hasattr(torch.Tensor, 'mine')"
    result = graded(ends, ATTEND.format("bad"), look, RIGHT, CHECK)
    assert result["notes"] == []
    assert result["exercises"]["check_weights"]["points"] == 1


# Cells with a check that is not graded, and the reason that the report gives.
REASONS = {
    "a function that is never called": (
        f"def later():\n    {CHECK.replace(chr(10), chr(10) + '    ')}",
        "… not graded: cell 2 names it, but no call ran",
    ),
    "a cell that fails before": (f"1 / 0\n{CHECK}", "ZeroDivisionError"),
    "a cell that is no Python": (f"{CHECK}\nf(", "SyntaxError"),
    "what cannot be copied": (
        f"import threading\nlock = threading.Lock()\n{IMPORT.format('weights')}"
        "check_weights(lambda q, k: lock)",
        "cannot be copied to a process of its own: TypeError: cannot pickle",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_is_not_graded_is_named_with_the_reason(graded, name):
    cell, reason = REASONS[name]
    result = graded(IMPORT.format("attend") + RIGHT, cell)
    assert reason in result["exercises"]["check_weights"]["verdict"]
    assert read_points(result)[0] == 0


def test_naming_a_chapter_in_a_comment_changes_no_points(graded):
    comment = "# from attnbook.exercises.luong import check_two_factors"
    assert read_points(graded(RIGHT, CHECK, comment)) == (1, POINTS)
    both = graded(RIGHT, CHECK, "from attnbook.exercises import luong")
    more = sum(x.stars for x in list_exercises(["luong"]).values())
    assert read_points(both) == (1, POINTS + more)


def test_a_check_in_a_long_loop_is_graded_and_named(graded):
    loop = f"{CHECK}\nfor _ in range(60):\n    check_weights(my_weights)"
    result = graded(RIGHT, loop, limits=Limits())
    assert read_points(result)[0] == 1
    assert "more than 50 times" in result["notes"][0]


def test_notebooks_are_graded_in_several_threads(tmp_path):
    """As a worker of Dask does, with bytes instead of a path."""
    raw = [write_notebook(None, x, CHECK) for x in (RIGHT, WRONG, RIGHT, WRONG)]
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(grade_notebook, raw)]
    assert [read_points(x)[0] for x in found] == [1, 0, 1, 0]


def test_bad_arguments_are_one_sentence(tmp_path, capsys):
    write_notebook(tmp_path / "x.ipynb", RIGHT, CHECK)
    (tmp_path / "empty").mkdir()
    for words, said in (
        ([str(tmp_path / "none")], "there is no file or folder"),
        ([str(tmp_path / "empty")], "holds no .ipynb file"),
        ([str(tmp_path), "--exercise", "check_wait"], "no chapter has an exercise"),
        ([str(tmp_path), "--csv", str(tmp_path / "none" / "x.csv")], "No such file"),
    ):
        assert command.main(words) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
        assert said in line


def test_the_command_writes_the_same_bytes_every_time(tmp_path, capsys):
    paths = [
        write_notebook(tmp_path / "b.ipynb", RIGHT, CHECK),
        write_notebook(tmp_path / "a.ipynb", WRONG, CHECK),
        tmp_path / "=broken.ipynb",
    ]
    paths[2].write_text("{")
    written = []
    for order, workers in ((paths, "1"), (paths[::-1], "2")):
        files = [tmp_path / f"o.{kind}" for kind in ("csv", "json", "html")]
        words = [*map(str, order), "--workers", workers]
        for file in files:
            words += [f"--{file.suffix[1:]}", str(file)]
        assert command.main(words) == 0
        written.append([file.read_text("utf8") for file in files])
    assert written[0] == written[1]
    table = list(csv.DictReader(io.StringIO(written[0][0])))
    assert [row["points"] for row in table] == ["0", "0", "1"]
    assert report.escape_formula("=1+1") == "'=1+1"
    assert table[1]["check_weights mistake"] == "no-scale"
    first = json.loads(written[0][1])[1]
    assert first["exercises"]["check_weights"]["mistake"] == "no-scale"
    assert not list(tmp_path.glob("*.unfinished"))
    assert f"1 of {POINTS} (" in capsys.readouterr().out


def test_an_interrupted_command_goes_on_where_it_was(tmp_path):
    paths = [
        write_notebook(tmp_path / f"{n}.ipynb", RIGHT, CHECK, f"# {n}")
        for n in range(2)
    ]
    slow = write_notebook(tmp_path / "2.ipynb", "import time; time.sleep(50)", CHECK)
    words = [str(tmp_path), "--workers", "1", "--json", str(tmp_path / "o.json")]
    run = subprocess.Popen(
        [sys.executable, "-m", "attnbook.grade", *words],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    kept = tmp_path / "o.json.unfinished"
    ends = time.monotonic() + 90
    while not kept.exists() or kept.read_text().count("u2713 right") < 2:
        assert time.monotonic() < ends
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)
    assert b"the same command goes on here" in run.communicate(timeout=20)[1]
    assert run.returncode == command.INTERRUPTED
    journal = pool.Journal(kept, 0, Limits(), None)
    known = {path for path in [*paths, slow] if journal.key(path) in journal.known}
    assert known == {*paths}
    left = []
    grade = lambda path: left.append(path) or {"error": "x"}  # noqa: E731
    assert len([*pool.grade_all([*paths, slow], journal, grade, 1)]) == 3
    assert left == [slow]


def test_the_seed_and_more_memory_are_options(graded):
    assert read_points(graded(RIGHT, CHECK, seed=5))[0] == 1
    large = "import torch\nx = torch.empty(300 * 2 ** 20)"
    assert "RuntimeError" in graded(large, CHECK)["notes"][0]
    more = replace(LIMITS, memory=2048)
    assert not graded(large, RIGHT, CHECK, limits=more)["notes"]


def test_only_the_exercises_that_are_asked_for_count(graded, tmp_path):
    result = graded(RIGHT, CHECK, ATTEND.format("len"), exercises=["check_weights"])
    assert read_points(result) == (1, 1)
    with pytest.raises(ValueError, match="no chapter has an exercise 'check_wait'"):
        graded(RIGHT, CHECK, exercises=["check_wait"])
    assert graded("1 + 1")["error"] == "it imports no check of this book"
    missing = grade_notebook(tmp_path / "none.ipynb")["error"]
    assert missing == "it cannot be read: No such file or directory"


KERNEL = """
from attnbook.exercises.efficient_attention import check_chunk_kernel, chunk_kernel
from attnbook.exercises.kernels import tl, triton

@triton.jit
def f(query, key, value, output, T, D: tl.constexpr, CHUNK: tl.constexpr):
    chunk_kernel(query, key, value, output, T, D, CHUNK)

check_chunk_kernel(f)
"""


def test_a_kernel_may_not_call_the_librarys(graded):
    assert read_slug(graded(KERNEL), "check_chunk_kernel") == "ready-made"


def test_without_triton_a_kernel_counts_nothing(tmp_path):
    (tmp_path / "triton.py").write_text("raise ImportError")
    write_notebook(tmp_path / "x.ipynb", KERNEL)
    words = "-m", "attnbook.grade", "x.ipynb", "--json", "x.json", "--html", "x.html"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, check=True)
    (result,) = json.loads((tmp_path / "x.json").read_text())
    found = result["exercises"]["check_chunk_kernel"]
    assert (found["points"], found["of"], found["mistake"]) == (None, 0, None)
    assert found["verdict"].startswith("… not attempted: Triton")
    assert "… None" not in (tmp_path / "x.html").read_text("utf8")
