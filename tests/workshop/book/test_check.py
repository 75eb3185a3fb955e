"""`make check`: what a change needs is found in the sources, and said."""

import json
import re
import subprocess
from concurrent.futures import Future
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import pytest

from terminal import Terminal
from workshop.book import check, select_tests
from workshop.book.dependencies import Dependencies
from workshop.progress import Progress

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
FILES = {
    "lib/pack/__init__.py": "from pack.low import lowest\n",
    "lib/pack/low.py": "def lowest():\n    return 1\n",
    "lib/pack/high.py": (
        "from pack import lowest\n\ndef high():\n    return lowest()\n"
    ),
    "lib/pack/apart.py": "def apart():\n    return 2\n",
    "lib/pack/parts/one.py": "one = dict()\n",
    "tests/test_low.py": (
        "import subprocess\nfrom pack.low import lowest\n"
        "from pack.apart import apart\n\n"
        "def test_low():\n    assert lowest()\n\n"
        "def test_apart():\n    assert apart()\n\n"
        "def test_process():\n    subprocess.run(['pack.apart'])\n"
    ),
    "tests/test_high.py": (
        "import pytest\nfrom pack.high import high\n\n"
        "@pytest.fixture\ndef made():\n    return high()\n\n"
        "def test_high(made):\n    assert made\n"
    ),
    "tests/test_parts.py": (
        "from importlib import import_module\n\n"
        "def each(name):\n    return import_module(f'pack.parts.{name}')\n\n"
        "def test_parts():\n    assert each('one')\n"
    ),
    "tests/workshop/book/test_pages.py": (
        "PAGES = 'chapters'\n\ndef test_pages():\n    assert PAGES\n"
    ),
    "chapters/07_some.md": (
        "# Some\n\n```{code-cell}\nfrom pack.parts.one import one\n```\n"
    ),
}


def git(root, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_only_files_that_differ_have_changed(repository):
    assert check.list_changed(repository) == []
    (repository / "lib/pack/low.py").write_text("low = None\n")
    (repository / "new.txt").write_text("x")
    (repository / "lib/pack/apart.py").unlink()
    git(repository, "add", "lib/pack/low.py")
    assert check.list_changed(repository) == [
        "lib/pack/apart.py",
        "lib/pack/low.py",
        "new.txt",
    ]


def test_since_a_branch_its_later_commits_do_not_count(repository):
    git(repository, "switch", "-q", "-c", "mine")
    (repository / "mine.txt").write_text("x")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "mine")
    git(repository, "switch", "-q", "main")
    (repository / "theirs.txt").write_text("x")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "theirs")
    git(repository, "switch", "-q", "mine")
    assert check.list_changed(repository) == []
    assert check.list_changed(repository, "main") == ["mine.txt"]


@pytest.mark.refusal
def test_an_unknown_commit_is_named(capsys, monkeypatch, repository):
    monkeypatch.setattr(check, "ROOT", repository)
    assert check.main(["nowhere"]) == 2
    assert capsys.readouterr().err == "SINCE=nowhere names no commit\n"


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("lib/pack/low.py", ["tests/test_low.py::test_low"]),
        ("lib/pack/high.py", ["tests/test_high.py::test_high"]),
        (
            "lib/pack/apart.py",
            [
                "tests/test_low.py::test_apart",
                "tests/test_low.py::test_process",
            ],
        ),
        ("lib/pack/parts/one.py", ["tests/test_parts.py::test_parts"]),
        ("tests/test_high.py", ["tests/test_high.py::test_high"]),
        (
            "chapters/07_some.md",
            ["tests/workshop/book/test_pages.py::test_pages"],
        ),
        (
            "chapters/07_some.ipynb",
            ["tests/workshop/book/test_pages.py::test_pages"],
        ),
    ],
)
def test_the_nearest_tests_of_a_file_are_found(repository, file, tests):
    assert check.make_plan(repository, [file]).tests == tests


def test_an_exercise_is_checked_by_its_cases_of_the_tests_of_all(repository):
    file = "lib/attnbook/exercises/some/sum.py"
    (repository / file).parent.mkdir(parents=True)
    (repository / file).write_text("check_sum = dict()\n")
    plan = check.make_plan(repository, [file])
    assert plan.words == ["check_sum"]
    assert plan.of_exercises == [*check.OF_EXERCISES]
    (step,) = check.list_steps(plan, [])
    assert {*check.OF_EXERCISES} <= {*step.command}
    other = check.make_plan(repository, ["lib/pack/parts/one.py"])
    assert not other.of_exercises


@pytest.mark.parametrize("name", check.OF_EXERCISES)
def test_tests_of_all_exercises_are_parametrized(name):
    assert "@pytest.mark.parametrize" in (ROOT / name).read_text("utf8")


def test_tests_further_away_are_counted(repository):
    assert check.make_plan(repository, ["lib/pack/low.py"]).further == 1


def test_a_chapter_needs_its_notebook_and_its_page(repository):
    plan = check.make_plan(repository, ["chapters/07_some.md"])
    assert plan.chapters == ["07_some"]
    assert plan.page
    assert plan.words == ["07_some", "some"]
    assert "other notebooks" in check.describe_left_out(plan)
    plan = check.make_plan(repository, ["lib/pack/low.py"])
    assert not plan.page
    assert "the pages" in check.describe_left_out(plan)


def test_chapters_that_import_a_changed_module_are_named(repository):
    plan = check.make_plan(repository, ["lib/pack/parts/one.py"])
    assert plan.importing == ["07_some"]
    assert "notebooks (changed code is used in 07_some)" in check.describe_left_out(
        plan
    )
    both = ["lib/pack/parts/one.py", "chapters/07_some.md"]
    assert not check.make_plan(repository, both).importing
    assert not check.make_plan(repository, ["lib/pack/apart.py"]).importing


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([], "a[07_some] a[08_other] b c[1] c[2]"),
        (["07_some", "some"], "a[07_some] b c[1] c[2]"),
        (["06_third", "third"], "b c[1] c[2]"),
        (["nowhere"], "a[07_some] a[08_other] b c[1] c[2]"),
    ],
)
@pytest.mark.parametrize("others", [True, False])
def test_of_parametrised_tests_the_changed_cases_run(monkeypatch, words, kept, others):
    monkeypatch.setenv("CHECK_WORDS", json.dumps(words))
    monkeypatch.setenv("CHECK_CASES", json.dumps([] if others else ["x.py"]))
    left = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    names = ["a[07_some]", "a[08_other]", "b", "c[1]", "c[2]"]
    items = [SimpleNamespace(nodeid=f"x.py::{n}", name=n) for n in names]
    select_tests.pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    about = [x for x in names if words and words[0] in x]
    wanted = kept.split() if others else about
    assert [item.name for item in items] == wanted
    assert len(items) + len(left) == len(names)


def test_a_name_is_traced_through_its_package(repository):
    graph = Dependencies(repository, FILES)
    assert graph.used_files["lib/pack/high.py"] == {
        "lib/pack/__init__.py",
        "lib/pack/low.py",
    }


def run_steps(*steps, real=False):
    steps, stream = list(steps), Terminal(real)
    runner = check.CommandRunner(Progress(stream))
    runner.run(steps)
    return runner, stream.text


def test_a_failed_step_is_shown_and_counted(capsys):
    steps, shown = run_steps(
        check.Step("good", ["true"]),
        check.Step("bad", ["sh", "-c", "echo why; exit 1"]),
    )
    assert steps.failed == ["bad"]
    assert len(steps.ran) == 2
    assert shown == ""
    assert capsys.readouterr().out == "bad failed:\nwhy\n\n"


def test_two_steps_run_at_a_time_and_one_waits_for_another(tmp_path):
    log = tmp_path / "log"

    def step(name, seconds, after=""):
        say = f"echo {{}} {name} >> {log}"
        text = f"{say.format('+')}; sleep {seconds}; {say.format('-')}"
        return check.Step(name, ["sh", "-c", text], after)

    _, shown = run_steps(
        step("pages", 0, "book"), step("book", 0.6), step("tests", 0.3),
        step("lint", 0), real=True,
    )  # fmt: skip
    told = log.read_text().splitlines()
    assert told.index("+ pages") > told.index("- book")
    assert told.index("- tests") < told.index("+ lint")
    running = 0
    for line in told:
        running += 1 if line[0] == "+" else -1
        assert running <= 2
    assert "book: 0 s, tests: 0 s" in shown


def test_steps_that_are_known_later_begin_beside_the_first(tmp_path):
    """A later step waits for the book, although it was not listed with it."""
    log, known = tmp_path / "log", Future()

    def step(name, wait, after=""):
        say = f"echo {{}} {name} >> {log}"
        text = f"{say.format('+')}; {wait}; {say.format('-')}"
        return check.Step(name, ["sh", "-c", text], after)

    # The book ends only after the tests have begun.
    book = step("book", f"until grep -q tests {log}; do sleep 0.05; done")
    more = [step("tests", "sleep 0.5"), step("page", "true", "book")]
    Timer(0.3, known.set_result, [more]).start()
    runner = check.CommandRunner(Progress(Terminal(False)))
    runner.run([book], known)
    assert not runner.failed and len(runner.ran) == 3
    lines = log.read_text().split("\n")
    assert lines[:2] == ["+ book", "+ tests"]
    assert lines.index("- book") < lines.index("+ page")


def test_an_error_in_finding_later_steps_is_raised():
    known = Future()
    known.set_exception(ValueError("no such file"))
    with pytest.raises(ValueError, match="no such file"):
        check.CommandRunner(Progress(Terminal(False))).run([], known)


@pytest.mark.parametrize(
    ("files", "tools"),
    [
        (["chapters/07_some.md", "chapters/07_some.ipynb"], []),
        (["tests/test_low.py"], ["ruff check", "ruff format"]),
        (["lib/pack/low.py"], ["ruff check", "ruff format", "mypy"]),
        (["lib/pack/low.js"], ["oxlint"]),
        ([".github/workflows/a.yml"], ["check-jsonschema", "zizmor"]),
        (["CITATION.cff"], ["check-jsonschema"]),
        (["pyproject.toml"], ["ruff check", "ruff format", "mypy"]),
    ],
)
def test_the_linters_of_the_changed_files_run(files, tools):
    steps = check.list_steps(check.Plan(), files)
    assert [step.name for step in steps] == tools


def test_every_linter_of_make_lint_belongs_to_some_files():
    recipe = re.search(
        r"(?m)^lint:.*\n((?:\t.+\n)+)", Path("Makefile").read_text("utf8")
    )[1]
    commands = [
        line.strip().split(" -- ")[-1].removeprefix("$(BIN)/")
        for line in recipe.splitlines()
    ]
    assert sorted(commands) == sorted(check.LINTERS)


def test_a_chapter_is_built_while_its_tests_and_notebook_run():
    plan = check.Plan(["a::b"], chapters=["07_some"], page=True)
    steps = check.list_steps(plan, ["chapters/07_some.md"])
    names = [step.name for step in steps]
    pages = ["pages 07_some"] if check.find_chromium() else []
    assert names == ["1 tests", *pages, "notebook 07_some"]
    assert "-n" not in steps[0].command
    assert [s.after for s in steps[1:-1]] == ["book"] * len(pages)
    (book,) = check.list_book_steps(["chapters/07_some.md"])
    assert book.name == "book"
    assert not check.list_book_steps(["lib/pack/low.py"])
    (alone,) = check.list_steps(check.Plan(["a::b"]), [])
    assert "-n" in alone.command


def test_every_chapter_of_the_book_can_be_read():
    """Also one with a line that begins with a colon, as in a slice."""
    chapters = [f"chapters/{p.name}" for p in ROOT.glob("chapters/[01]*.md")]
    found = Dependencies(ROOT, chapters).statements
    assert len(found) == len(chapters) >= 12
    assert all(found.values())
