"""`make gpu` without a GPU: its runner of cells, its stages and its notes."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from importlib import metadata
from pathlib import Path

import pytest
import torch

from workshop.bench import gpu, notebook_cells
from workshop.bench.gpu import Stage, read_cells, read_tests, run_stages
from workshop.bench.result_log import read_done

# No shapes: processes and files.
pytestmark = [
    pytest.mark.exact("looks at stages, files and messages"),
    pytest.mark.precision,
]
ROOT = Path(__file__).parents[3]
SETTING = {"device": "a GPU", "driver": "1", "versions": {}, "code": "c"}
# What a bare GPU machine has, with what these packages require themselves.
GIVEN = ("torch", "triton", "numpy", "matplotlib", "pytest", "jaxtyping")
# Modules of this repository, and what Python's own start imports.
NOT_HIDDEN = {"attnbook", "workshop", "tests", "docs"}


def list_required(names):
    """Return the installed packages that these need, themselves included."""
    found, left = set(), [*names]
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            needs = metadata.distribution(name).requires or ()
        except metadata.PackageNotFoundError:  # of another platform
            continue
        found.add(name)
        left += [re.match(r"[\w.-]+", x).group() for x in needs if "extra ==" not in x]
    return found


def list_absent():
    """Return the importable names that only other packages have."""
    given = list_required(GIVEN)
    return [
        name
        for name, packages in metadata.packages_distributions().items()
        if name.isidentifier()
        and not name.startswith("_")
        and name not in sys.stdlib_module_names | NOT_HIDDEN
        and not {re.sub(r"[-_.]+", "-", x).lower() for x in packages} & given
        and not all(map(is_vendored, packages))
    ]


def is_vendored(package):
    """Return whether setuptools brings a package inside itself."""
    # Once it is imported, what it brings is on Python's path as well.
    return "_vendor" in metadata.distribution(package).locate_file("").parts


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Return an environment in which these packages cannot be imported."""
    folder = tmp_path_factory.mktemp("bare")
    for name in list_absent():
        code = f"raise ModuleNotFoundError({name!r})\n"
        (folder / f"{name}.py").write_text(code)
    path = os.pathsep.join([str(folder), str(ROOT / "lib")])
    return os.environ | {
        "PYTHONPATH": path,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_NUM_THREADS": "1",
    }


def test_a_bare_machine_lacks_all_other_packages(bare):
    absent = list_absent()
    assert {"IPython", "yaml", "tqdm", "bs4", "traitlets"} <= {*absent}
    assert not {"torch", "numpy", "PIL", "sympy"} & {*absent}
    code = "import {}"
    for name, lacks in ("yaml", True), ("torch", False):
        done = subprocess.run(
            [sys.executable, "-c", code.format(name)],
            env=bare,
            capture_output=True,
        )
        assert bool(done.returncode) == lacks, name


def written(path):
    return [json.loads(line) for line in path.read_text("utf8").splitlines()]


def ran(out):
    """Return the final outcome of each cell."""
    return {
        x["cell"]: x for x in written(out) if "cell" in x and x["outcome"] != "begun"
    }


WIDGET_CELLS = {
    "10_cost": {"CostCalculator", "calculator"},
    "11_flash_attention": {"TileStepper"},
}


@pytest.mark.parametrize("name", gpu.CHAPTERS)
def test_a_chapter_runs_from_top_to_bottom_without_jupyter(name, bare, tmp_path):
    notebook = ROOT / "chapters" / f"{name}.ipynb"
    out = tmp_path / "cells.jsonl"
    command = [
        sys.executable,
        "-m",
        "workshop.bench.notebook_cells",
        str(notebook),
    ]
    done = subprocess.run(
        [*command, "--out", str(out)], env=bare, capture_output=True, text=True
    )
    found = ran(out)
    bad = {n: x for n, x in found.items() if x["outcome"] in notebook_cells.BAD}
    assert (done.returncode, bad) == (0, {}), done.stderr[-2000:]
    sources = dict(notebook_cells.read_code_cells(notebook))
    assert list(found) == list(sources)
    left = {n for n, x in found.items() if x["outcome"] == "left out"}
    assert left == {
        n
        for n, source in sources.items()
        if any(word in source for word in WIDGET_CELLS[name])
    }
    assert written(out)[-1] == {"outcome": "end"}


def notebook_of(path, *sources):
    path.write_text(
        json.dumps(
            {
                "cells": [
                    {"cell_type": "code", "source": textwrap.dedent(source)}
                    for source in sources
                ]
            }
        )
    )
    return path


def outcomes(tmp_path, *sources):
    path = notebook_of(tmp_path / "n.ipynb", "import torch", *sources)
    code = notebook_cells.main([str(path), "--out", str(tmp_path / "n.jsonl")])
    found = list(ran(tmp_path / "n.jsonl").values())[1:]
    return code, [(x["outcome"], x.get("error")) for x in found]


@pytest.fixture
def here(monkeypatch):
    """The runner changes folder and `__main__`; put both back."""
    monkeypatch.chdir(Path.cwd())
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def test_a_cell_that_fails_is_named_with_its_line_and_the_rest_goes_on(tmp_path, here):
    code, found = outcomes(
        tmp_path, "x = 1", "y = 2\nassert x == y", "z = x + y", "u = missing"
    )
    assert code == 1
    assert found == [
        ("ran", None),
        ("failed", "line 2: AssertionError: "),
        ("ran", None),
        ("failed", "line 1: NameError: name 'missing' is not defined"),
    ]


def test_memory_that_runs_out_is_recorded_as_such(tmp_path, here):
    code, found = outcomes(
        tmp_path, "raise torch.OutOfMemoryError('no 64 GiB')", "x = 1"
    )
    assert code == 1
    assert [x for x, _ in found] == ["out of memory", "ran"]
    assert "no 64 GiB" in found[0][1]


@pytest.mark.parametrize(
    "line", ["%matplotlib inline", "!pip install torch", "x = !ls", "print?"]
)
def test_ipython_only_syntax_is_refused(tmp_path, here, line):
    code, found = outcomes(tmp_path, f"y = 1\n{line}", "x = 3 \\\n% 2")
    assert code == 1
    assert found[0] == ("refused", f"only IPython understands {line!r}")
    assert found[1] == ("ran", None)


def test_widget_cells_and_cells_that_need_them_are_skipped(tmp_path, here):
    code, found = outcomes(
        tmp_path,
        "from attnbook.widgets.tile_stepper import TileStepper\n"
        "stepper = TileStepper()\nsize = 3",
        "def f():\n    return stepper.step",
        "size = 4",
        "assert size == 4",
        "f()",
        "def g(stepper):\n    return stepper\ng(1)",
    )
    assert code == 0
    assert found == [
        ("left out", "a widget"),
        ("left out", "needs stepper"),
        ("ran", None),
        ("ran", None),
        ("left out", "needs f"),
        ("ran", None),
    ]


def test_the_value_of_the_last_line_is_shown(tmp_path, here, capsys):
    outcomes(tmp_path, "x = 5\nx + 1", "None", "print('p');")
    assert capsys.readouterr().out == "6\np\n"


def test_the_cuda_tests_are_collected_on_a_bare_machine(bare):
    tests = [
        str(p)
        for p in (ROOT / "tests").rglob("test_*.py")
        if "mark.cuda" in p.read_text("utf8") and p != Path(__file__)
    ]
    assert len(tests) >= 2
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda"]
    command += ["--collect-only", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, env=bare, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_reported_and_nothing_is_written(tmp_path, capsys):
    out = tmp_path / "out"
    assert gpu.main(["--out", str(out)]) == 2
    report = capsys.readouterr().err
    assert "needs an NVIDIA GPU" in report and len(report.splitlines()) == 1
    assert not out.exists()


def test_a_python_without_torch_is_named_in_one_sentence(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('torch')")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "lib")])
    done = subprocess.run(
        [sys.executable, "-m", "workshop.bench.gpu", "--out", "out"],
        env=os.environ | {"PYTHONPATH": path}, cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"{sys.executable} has no torch")
    assert len(done.stderr.splitlines()) == 1


def script(path, text):
    path.write_text("import json, os, sys, time\n" + textwrap.dedent(text))
    return [sys.executable, str(path)]


def a_stage(tmp_path, text, name="stage", limit=30, code="h"):
    """A stage whose script appends lines of cells to its record."""
    record = tmp_path / f"{name}.jsonl"
    start = f"""
        file = open({str(record)!r}, "a")
        def note(**line):
            file.write(json.dumps(line) + "\\n")
            file.flush()
        note(outcome="start", setting={code!r})
        def cell(n, outcome, **more):
            note(cell=n, outcome=outcome, **more)
    """
    command = script(
        tmp_path / f"{name}.py",
        textwrap.dedent(start) + textwrap.dedent(text),
    )
    return Stage(name, command, record, limit, code, read_cells)


FINE = """
cell(1, "ran")
note(outcome="end")
"""


def test_finished_stages_are_not_repeated_unless_their_code_has_changed(
    tmp_path,
):
    stage = a_stage(tmp_path, FINE)
    first = run_stages([stage], tmp_path, SETTING)
    assert gpu.choose_exit_code(first) == 0
    lines = written(stage.record)
    again = run_stages([stage], tmp_path, SETTING)
    assert written(stage.record) == lines
    assert again["stages"]["stage"]["counts"] == {"ran": 1}
    changed = a_stage(tmp_path, FINE, code="another")
    run_stages([changed], tmp_path, SETTING)
    assert len(written(stage.record)) == 2 * len(lines)


def test_a_stage_that_takes_too_long_is_stopped_and_keeps_what_it_found(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(gpu, "PATIENCE", 1)
    slow = a_stage(tmp_path, 'cell(1, "ran")\ntime.sleep(60)', "slow", limit=2)
    fine = a_stage(tmp_path, FINE, "fine")
    begun = time.monotonic()
    summary = run_stages([slow, fine], tmp_path, SETTING)
    assert time.monotonic() - begun < 20
    assert gpu.choose_exit_code(summary) == 3
    found = summary["stages"]
    assert found["slow"]["counts"] == {"ran": 1}
    assert not found["slow"]["complete"] and found["fine"]["complete"]
    assert "slow: NOT complete" in (tmp_path / "summary.txt").read_text()


def test_no_stage_begins_when_the_time_is_up(tmp_path):
    stage = a_stage(tmp_path, FINE)
    summary = run_stages([stage], tmp_path, SETTING, total=gpu.PATIENCE)
    assert not stage.record.exists()
    assert gpu.choose_exit_code(summary) == 3


def test_a_killed_stage_is_tried_again_while_it_makes_progress(tmp_path):
    mark = tmp_path / "mark"
    dies_once = f"""
    if not os.path.exists({str(mark)!r}):
        open({str(mark)!r}, "w").close()
        cell(1, "begun")
        os._exit(3)
    cell(1, "ran")
    cell(2, "ran")
    note(outcome="end")
    """
    summary = run_stages([a_stage(tmp_path, dies_once)], tmp_path, SETTING)
    assert summary["stages"]["stage"]["counts"] == {"ran": 2}
    assert gpu.choose_exit_code(summary) == 0


def test_a_stage_that_cannot_run_is_a_failure(tmp_path):
    summary = run_stages([a_stage(tmp_path, "sys.exit(4)")], tmp_path, SETTING)
    failed = summary["stages"]["stage"]["failed"]
    assert "exit code 4" in failed["the stage"]
    assert gpu.choose_exit_code(summary) == 1


def test_the_summary_names_failures_and_the_device(tmp_path):
    text = """
    cell(1, "failed", error="line 2: AssertionError: ")
    cell(2, "left out", error="a widget")
    cell(3, "out of memory", error="line 1: OutOfMemoryError: 64 GiB")
    cell(4, "begun")
    note(outcome="end")
    """
    summary = run_stages([a_stage(tmp_path, text)], tmp_path, SETTING)
    assert gpu.choose_exit_code(summary) == 1
    stored = json.loads((tmp_path / "summary.json").read_text("utf8"))
    assert stored == summary
    assert stored["device"] == "a GPU" and stored["code"] == "c"
    assert {*stored["stages"]["stage"]["failed"]} == {
        "cell 1", "cell 3", "cell 4",
    }  # fmt: skip
    report = (tmp_path / "summary.txt").read_text("utf8")
    for part in ("driver: 1", "line 2: AssertionError", "left out: cell 2"):
        assert part in report


def test_the_stages_run_the_cuda_tests_both_chapters_and_the_benchmark(
    tmp_path,
):
    found = {s.name: s for s in gpu.list_stages(tmp_path, "quick", SETTING)}
    assert list(found) == ["tests", *gpu.CHAPTERS, "bench"]
    tests = " ".join(found["tests"].command)
    assert "test_cuda_kernels.py" in tests and "test_cuda_models.py" in tests
    assert "--quick" in found["bench"].command
    assert sum(gpu.LIMITS.values()) < gpu.TOTAL - 180
    assert gpu.TOTAL <= 540
    assert len({s.record for s in found.values()}) == 4
    other = gpu.list_stages(tmp_path, "quick", SETTING | {"driver": "2"})
    assert all(
        a.code != b.code
        for a, b in zip(found.values(), other, strict=True)
        if a.name != "bench"
    )


SUITE = """
import os

class OutOfMemoryError(RuntimeError):
    pass

def test_fine():
    pass

def test_wrong():
    assert 1 == 2

def test_memory():
    raise OutOfMemoryError("no 64 GiB")

def test_dies():
    if os.environ["MODE"] == "die":
        os._exit(9)

def test_hangs():
    if os.environ["MODE"] == "hang":
        raise KeyboardInterrupt  # a signal would be lost in a background job

def test_last():
    pass
"""


def suite(tmp_path, mode, setting="s"):
    """Run the tests once; return their outcomes, and how the run ended."""
    file, notes = tmp_path / "test_suite.py", tmp_path / "tests.jsonl"
    file.write_text(SUITE)
    environment = os.environ | {
        "MODE": mode,
        "PYTHONPATH": str(ROOT / "lib"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null"]
    command += ["-p", "no:cacheprovider", "-p", "workshop.bench.result_log"]
    command += ["--rootdir", str(tmp_path), "--notes", str(notes)]
    command += ["--setting", setting, str(file)]
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True)
    found = read_done(notes, setting)
    short = {k.rpartition("::")[2]: v["outcome"] for k, v in found.items() if k}
    stage = Stage("tests", [], notes, 1, setting, read_tests)
    return short, read_tests(stage)


def test_a_killed_test_run_continues_without_the_test_that_killed_it(tmp_path):
    first = {
        "test_fine": "passed", "test_wrong": "failed",
        "test_memory": "out of memory", "test_dies": "failed",
    }  # fmt: skip
    found, result = suite(tmp_path, "die")
    assert (found, result["complete"]) == (first, False)
    found, result = suite(tmp_path, "hang")
    assert (found, result["complete"]) == (first, False)
    found, result = suite(tmp_path, "")
    rest = {"test_hangs": "passed", "test_last": "passed"}
    assert (found, result["complete"]) == (first | rest, True)
    assert result["counts"] == {"passed": 3, "failed": 2, "out of memory": 1}
    assert any("the process died" in x for x in result["failed"].values())
    lines = written(tmp_path / "tests.jsonl")
    assert sum(x["outcome"] == "begun" for x in lines) == 7
    assert read_done(tmp_path / "tests.jsonl", "another") == {}


SHARED = """
import pytest

@pytest.mark.parametrize("i", range(7))
def test_each(i):
    assert i != 4
"""


def test_processes_share_the_tests_and_all_must_end(tmp_path):
    file, notes = tmp_path / "test_shared.py", tmp_path / "tests.jsonl"
    file.write_text(SHARED)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null"]
    command += ["-p", "no:cacheprovider", "-p", "workshop.bench.result_log"]
    command += ["--rootdir", str(tmp_path), "--notes", str(notes)]
    command += ["--setting", "s", str(file)]
    stage = Stage("tests", command, notes, 60, "s", read_tests, shards=3)
    summary = run_stages([stage], tmp_path, SETTING)
    found = summary["stages"]["tests"]
    assert found["counts"] == {"passed": 6, "failed": 1}
    assert found["complete"] and len(found["failed"]) == 1
    lines = written(notes)
    assert sum(x["outcome"] == "begun" for x in lines) == 7
    ends = [x for x in lines if x["outcome"] == "end"]
    assert {x["shard"] for x in ends} == {"0/3", "1/3", "2/3"}
    notes.write_text("\n".join(json.dumps(x) for x in lines if x != ends[0]) + "\n")
    assert not read_tests(stage)["complete"]


def test_an_incomplete_line_of_notes_is_ignored(tmp_path):
    notes = tmp_path / "tests.jsonl"
    notes.write_text('{"test": "a", "outcome": "passed", "setting": "s"}\n{"te')
    assert list(read_done(notes, "s")) == ["a"]
