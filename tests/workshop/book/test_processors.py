"""Every processor setting is tried, or is said not to be, and why."""

import ast
import io
import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from numeric import computes, read_imports
from workshop.book import processor_settings, processors
from workshop.book.processor_settings import (
    KNOWN,
    X86,
    Setting,
    choose_settings,
    find_obstacle,
    list_settings,
    parse_reports,
)
from workshop.book.processors import (
    OutcomeStore,
    RunOutcome,
    format_table,
    list_parts,
    main,
    read_outcome,
)
from workshop.progress import Progress

pytestmark = pytest.mark.precision

NAMES = [setting.name for setting in list_settings()]
# What the libraries print on an AVX-512 machine under the plainest setting.
SAID = """capability DEFAULT
threads 1
MKL_VERBOSE oneMKL 2024.0 Intel(R) Architecture processors, Lnx 2.30GHz lp64
MKL_VERBOSE SGEMM(N,N,64,64,64) 432.23us CNR:COMPATIBLE Dyn:1 FastMM:1 TID:0
onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:1
onednn_verbose,v1,info,cpu,isa:Intel SSE4.1
onednn_verbose,v1,info,gpu,runtime:none
"""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of its own for what a run keeps, and a small thing to test."""
    monkeypatch.setattr(processors, "LOGS", tmp_path / "kept")
    monkeypatch.setattr(processors, "compute_fingerprint", lambda words: "the same")
    return tmp_path / "kept"


def test_every_value_runs_alone_and_the_plainest_of_all_together():
    alone = {f"{name}={value}" for name in KNOWN for value in KNOWN[name]}
    assert len(alone) == 10
    assert {*NAMES} == alone | {
        "default",
        "plainest",
        "default-2-threads",
        "plainest-2-threads",
    }
    (plainest,) = choose_settings(["plainest"])
    assert dict(plainest.variables) == {
        "MKL_CBWR": "COMPATIBLE",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    }
    assert {s.threads for s in list_settings() if "2-threads" in s.name} == {2}


def test_a_setting_changes_nothing_but_its_own_variables(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    monkeypatch.setenv("SHELL_OF_ITS_OWN", "stays")
    made = choose_settings(["ATEN_CPU_CAPABILITY=avx2"])[0].make_environment()
    assert made["ATEN_CPU_CAPABILITY"] == "avx2"
    assert "MKL_CBWR" not in made
    assert (made["OMP_NUM_THREADS"], made["SHELL_OF_ITS_OWN"]) == ("1", "stays")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("MKL_CBWR=NONSENSE", "'NONSENSE'.*COMPATIBLE, SSE4_2, AVX2, AVX512$"),
        ("ATEN_CPU_CAPABILITY=AVX2", "'AVX2'.*default, avx2, avx512$"),
        ("MKL_CBRW=AVX2", "'MKL_CBRW=AVX2'.*default, plainest, MKL_CBWR=COMP"),
        ("plain", "'plain'.*plainest"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_known_ones(word, expected, capsys):
    with pytest.raises(ValueError, match=expected):
        choose_settings(["default", word])
    assert main([word]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_reports_of_the_libraries_are_parsed():
    assert parse_reports(SAID) == {
        "MKL_CBWR": "COMPATIBLE",
        "ATEN_CPU_CAPABILITY": "DEFAULT",
        "ONEDNN_MAX_CPU_ISA": "Intel SSE4.1",
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ""),
        ("CNR:COMPATIBLE", "CNR:AUTO", "COMPATIBLE was ignored: AUTO is used"),
        ("DEFAULT", "AVX512", "default was ignored: AVX512 is used"),
        ("SSE4.1", "AVX 10.1", "SSE41 was ignored: Intel AVX 10.1 is used"),
        ("threads 1", "threads 4", "OMP_NUM_THREADS=1 was ignored: 4 is used"),
        ("MKL_VERBOSE", "BLIS", "no library that reads MKL_CBWR"),
    ],
)
def test_a_setting_that_was_ignored_is_not_tried(old, new, expected):
    (plainest,) = choose_settings(["plainest"])
    found = find_obstacle(plainest, "x86_64", lambda _: SAID.replace(old, new))
    assert expected in found
    assert bool(expected) == bool(found)


def test_instructions_that_the_processor_lacks_are_not_tried(monkeypatch):
    stopped = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(processor_settings, "PROBE", stopped)
    (setting,) = choose_settings(["ATEN_CPU_CAPABILITY=avx512"])
    obstacle = find_obstacle(setting, "x86_64")
    assert obstacle == "it chooses instructions that this processor lacks"
    monkeypatch.setattr(processor_settings, "PROBE", "raise SystemExit('no torch')")
    with pytest.raises(RuntimeError, match=r"does not compute .*'no torch'"):
        find_obstacle(setting, "x86_64")


def test_other_processors_try_the_default_alone():
    expected = "capability DEFAULT\nthreads {}\n"
    tried = {
        setting.name
        for setting in list_settings()
        if not find_obstacle(setting, "arm64", lambda s: expected.format(s.threads))
    }
    assert tried == {"default", "default-2-threads"}
    assert "this processor is arm64" in find_obstacle(list_settings()[1], "arm64")


def test_an_unknown_value_that_mkl_ignores_is_noticed(monkeypatch):
    monkeypatch.setitem(KNOWN["MKL_CBWR"], "NONSENSE", "NONSENSE")
    setting = Setting("x", (("MKL_CBWR", "NONSENSE"),))
    assert find_obstacle(setting)
    if platform.machine().lower() in X86:
        assert "MKL_CBWR=NONSENSE was ignored" in find_obstacle(setting)


def test_the_plainest_setting_takes_effect_on_every_x86_processor():
    (plainest,) = choose_settings(["plainest"])
    x86 = platform.machine().lower() in X86
    assert x86 == (find_obstacle(plainest) == "")


def test_failures_are_counted_with_their_messages(tmp_path):
    report = tmp_path / "x.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.test_a" name="b"/>'
        '<testcase classname="tests.test_a" name="c"><failure message="1 is '
        'not 2&#10;more"/></testcase><testcase classname="tests.test_a" '
        'name="d"><skipped/></testcase></testsuite></testsuites>'
    )
    assert read_outcome(report, 1, tmp_path / "log") == RunOutcome(
        1, {"tests/test_a::c": "1 is not 2"}
    )


@pytest.mark.parametrize("status", [2, 3, 4, 5, -9])
def test_an_interrupted_run_is_a_failure(tmp_path, status):
    found = read_outcome(tmp_path / "none.xml", status, tmp_path / "its.log")
    assert (found.passed, len(found.failures)) == (0, 1)
    assert "its.log" in found.failures["pytest"]


def test_pytest_runs_under_the_setting(kept, tmp_path):
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
        import os
        def test_right(): assert os.environ["MKL_CBWR"] == "COMPATIBLE"
        def test_wrong(): assert os.environ["OMP_NUM_THREADS"] == "7"
        """)
    )
    kept.mkdir()
    (plainest,) = choose_settings(["plainest"])
    words = ["-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    found = processors.run_pytest(plainest, "tests", words, Progress(io.StringIO()))
    assert found.passed == 1
    assert [*found.failures] == ["test_it::test_wrong"]
    assert found.seconds > 0
    assert "1 failed, 1 passed" in (kept / "plainest-tests.log").read_text()


def outcome(setting, part, options, shown):
    """Pretend to run: one setting fails."""
    bad = {"a::b": "off"} if setting.name == "MKL_CBWR=AVX2" else {}
    return RunOutcome(5 - len(bad), bad, 61.0)


def test_a_failing_setting_does_not_stop_the_others(kept, capsys):
    lacks = "ATEN_CPU_CAPABILITY=avx512"
    reason = {lacks: "this processor is too old"}
    status = main([], outcome, lambda s: reason.get(s.name, ""))
    assert status == 1
    shown = capsys.readouterr().out.split("setting ")[1].splitlines()
    assert shown[0].split() == ["passed", "failed", "seconds"]
    assert [line.split()[0] for line in shown[1:15]] == NAMES
    rows = {line.split()[0]: line.split()[1:] for line in shown[1:15]}
    assert rows["default"] == ["5", "0", "61"]
    assert rows["MKL_CBWR=AVX2"] == ["4", "1", "61"]
    assert " ".join(rows[lacks]) == f"not tried: {reason[lacks]}"
    assert shown[15] == "failed under MKL_CBWR=AVX2: a::b  off"


def test_success_is_exit_status_zero(kept):
    words = ["default", "MKL_CBWR=AVX512"]
    assert main(words, outcome, lambda s: "") == 0
    assert main(words, outcome, lambda s: "lacking") == 0


def test_passed_settings_are_kept_and_failed_ones_run_again(kept):
    ran = []

    def noted(setting, *rest):
        ran.append(setting.name)
        return outcome(setting, *rest)

    words = ["default", "MKL_CBWR=AVX2"]
    for _ in range(2):
        main(words, noted, lambda s: "")
    assert ran == [*words, words[1]]
    main([words[0], "--quick"], noted, lambda s: "")
    assert ran[3:] == words[:1]


def test_a_changed_file_discards_passed_settings(tmp_path):
    OutcomeStore(tmp_path / "x", "old").store("default-tests", RunOutcome(3))
    assert OutcomeStore(tmp_path / "x", "old").get("default-tests") == RunOutcome(3)
    assert OutcomeStore(tmp_path / "x", "new").get("default-tests") is None


def test_a_changed_file_changes_the_fingerprint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("torch")
    Path("lib").mkdir()
    before = processors.compute_fingerprint([])
    Path("lib/x.py").write_text("x = 1")
    assert len({before, processors.compute_fingerprint([])}) == 2
    assert processors.compute_fingerprint([]) != processors.compute_fingerprint(
        ["a.ipynb"]
    )


def test_a_notebook_that_sets_one_thread_is_not_repeated_with_two(tmp_path):
    one, free = tmp_path / "one.ipynb", tmp_path / "free.ipynb"
    one.write_text("torch.set_num_threads(1)")
    free.write_text("torch.ones(2)")
    words = ["--nbval", str(one), str(free)]
    two = choose_settings(["default-2-threads"])[0]
    assert list_parts(list_settings()[0], False, words)["notebooks"] == words
    assert list_parts(two, False, words)["notebooks"] == ["--nbval", str(free)]
    assert [*list_parts(two, False, words[:2])] == ["tests"]
    assert [*list_parts(list_settings()[0], True, [])] == ["tests"]


def test_where_no_notebook_is_repeated_the_reason_is_printed(kept, tmp_path, capsys):
    book = tmp_path / "one.ipynb"
    book.write_text("torch.set_num_threads(1)")
    words = ["default", "default-2-threads", "--", "--nbval", str(book)]
    assert main(words, outcome, lambda s: "") == 0
    shown = capsys.readouterr().out.splitlines()
    assert "default-2-threads: notebooks: not repeated: each sets one thread" in (shown)
    assert sum("notebooks: not repeated" in line for line in shown) == 1


def test_the_table_of_a_setting_that_was_not_tried():
    lines = [*format_table({"default": {}, "plainest": "no MKL"})]
    assert lines[2] == "plainest  not tried: no MKL"


SOURCES = {
    "direct.py": "def f():\n    import torch.nn",
    "through.py": "from helper import x",
    "helper.py": "import inner.deep",
    "inner/deep.py": "from numpy import array",
    "circle.py": "import round_again",
    "round_again.py": "import circle",
    "text.py": "import re\nx = 'import torch'",
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_computes_if_something_it_imports_does(tmp_path, name):
    (tmp_path / "inner").mkdir()
    for file, source in SOURCES.items():
        (tmp_path / file).write_text(source)
    exact = {"circle.py", "round_again.py", "text.py"}
    assert computes(tmp_path / name, (tmp_path,)) == (name not in exact)


COMPARISONS = {"allclose", "assert_close", "isclose", "approx"}
TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: path.stem
)
def test_modules_that_compare_floats_are_numeric(path):
    tree = ast.parse(path.read_text("utf8"))
    names = {x.attr for x in ast.walk(tree) if isinstance(x, ast.Attribute)}
    if names & COMPARISONS and "browser" not in names:
        assert computes(path, (TESTS / "helpers", TESTS, TESTS.parent / "lib"))
        assert "exact" not in names


def list_imports(tree):
    """Yield what every import in a parsed module names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = [node.module] if node.module else []
            yield from package
            yield from (".".join([*package, x.name]) for x in node.names)


@pytest.mark.parametrize("folder", ["lib", "tests"])
def test_parsing_only_imports_finds_the_same_names(folder):
    for path in (TESTS.parent / folder).rglob("*.py"):
        parsed = ast.parse(path.read_text("utf8"))
        assert read_imports(path) == {*list_imports(parsed)}, path


def collect_numeric(*files):
    """Return pytest's list of these files' numeric tests, one per line."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    # The reader's own PYTEST_ADDOPTS could change what pytest prints.
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    ran = subprocess.run(
        [*command, "-q", "--co", "-m", "numeric", *map(str, files)],
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        env=environment,
    )
    return ran.stdout


def test_a_test_of_an_exact_module_may_be_numeric():
    """In test_notebook.py, only the test that runs a notebook is numeric."""
    found = collect_numeric(TESTS / "workshop/book/test_notebook.py")
    assert found.count("test_notebook.py::") == 1
    assert "::test_executing_again" in found


def test_the_marker_follows_the_imports():
    """A module with PyTorch is collected beside this one, which has none."""
    softmax = TESTS / "attnbook/attention/test_masked_softmax.py"
    found = collect_numeric(__file__, softmax)
    assert "test_masked_softmax.py::" in found
    assert "test_processors.py::" not in found
