"""What the README says is there: commands, files, picture, chapters."""

import re
from pathlib import Path

import pytest
from PIL import Image

from attnbook.exercises.bahdanau import check_context
from right_answers.bahdanau import ANSWERS

pytestmark = [
    pytest.mark.exact("reads sources and pages, and compares texts"),
    pytest.mark.precision,
]

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text("utf8")
INDEX = (ROOT / "chapters/index.md").read_text("utf8")
TARGETS = set(re.findall(r"(?m)^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf8")))
CHAPTERS = sorted(p.stem for p in (ROOT / "chapters").glob("[0-9][0-9]_*.md"))


def commands(text):
    """Return the make targets that code in the text names."""
    return set(re.findall(r"(?m)(?:`|^)make ([a-z][a-z-]*)", text))


def links(text):
    """Return where links and pictures that are not web pages lead."""
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return {x for x in found if not x.startswith(("http", "#"))}


def files(text):
    """Return what stands in code and looks like a path of the repository."""
    found = re.findall(r"`([\w.-]+/[\w./-]*|\.ci/run)`", text)
    return {x for x in found if "NN_" not in x}


def test_every_command_is_a_target():
    named = commands(README)
    assert {"book", "test", "help", "clean"} <= named
    assert named <= TARGETS


def test_every_command_is_mentioned():
    steps = {"lint", "unit", "shapes", "javascript", "notebooks", "browser"}
    assert commands(README) >= TARGETS - steps


@pytest.mark.parametrize("path", sorted(links(README) | files(README)))
def test_every_file_and_command_named_exists(path):
    assert (ROOT / path).exists()


def test_there_are_links_and_files_to_look_for():
    assert len(links(README)) >= 8
    assert len(files(README)) >= 10


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_chapter_is_listed_with_its_question(name):
    for text in (README, INDEX):
        rows = [x for x in text.splitlines() if f"{name}.ipynb)" in x]
        assert any(re.search(r"\| [^|]+\? \|", row) for row in rows)


def test_readme_and_first_page_ask_the_same_questions():
    def questions(text):
        return re.findall(r"\d\d_\w+\.ipynb\) \| ([^|]+\?) \|", text)

    assert questions(README) == questions(INDEX)
    assert len(questions(README)) == len(CHAPTERS)


@pytest.mark.parametrize("name", CHAPTERS[1:])
def test_a_chapters_minutes_are_the_same_everywhere(name):
    text = (ROOT / f"chapters/{name}.md").read_text("utf8")
    card = (
        r"\*Time\*: (?:(\d+) minutes for the core, )?(\d+) (?:minutes to read|"
        r"with the deeper sections), (\d+)\s+more\s+for the exercises\."
    )
    core, read, more = re.search(card, text).groups()
    each = re.findall(r"(?m)^★+ · (\d+) minutes\.", text)
    assert int(more) == sum(map(int, each))
    row = next(x for x in INDEX.splitlines() if f"{name}.ipynb) |" in x)
    whole = f"core {core}, in all {read}" if core else read
    assert row.endswith(f"| {whole} minutes, exercises {more} |")


def test_the_picture_is_a_page_and_small():
    (alt, path) = re.findall(r"!\[([^\]]*)\]\((chapters/[^)]+)\)", README)[0]
    assert len(alt) > 40
    assert (ROOT / path).stat().st_size < 150_000
    with Image.open(ROOT / path) as picture:
        assert picture.format == "PNG"
        assert picture.width >= 800


def test_there_is_one_marker_for_the_badges():
    assert README.splitlines().count("<!-- badges -->") == 1


def test_the_pin_of_torch_is_the_locks():
    (named,) = set(re.findall(r"torch==([\d.]+)", README))
    lock = (ROOT / "requirements.txt").read_text("utf8")
    assert re.search(rf"(?m)^torch=={re.escape(named)}$", lock)


def test_the_pythons_named_are_those_allowed():
    project = (ROOT / "pyproject.toml").read_text("utf8")
    lowest = re.search(r'requires-python = ">=([\d.]+)"', project).group(1)
    assert f"Python {lowest}, 3.12 or 3.13" in README


def test_the_run_and_the_chapter_of_the_examples_exist():
    name = re.search(r"make evidence NAME=(\w+)", README).group(1)
    assert (ROOT / f"lib/attnbook/records/json/{name}.json").exists()
    assert re.search(r"make notebook NAME=(\w+)", README).group(1) in CHAPTERS


def test_the_example_for_teachers_runs(capsys):
    code = re.search(r"```python\n(.*?)```", README, re.S).group(1)
    known = check_context.mistakes[0]
    right = ANSWERS["check_context"][0][1]
    exec(code, {"answer_of_a_student": right})
    exec(code, {"answer_of_a_student": known.answer})
    message = capsys.readouterr().out.splitlines()
    assert message == ["True None", f"False {known.slug}"]


def test_a_missing_command_or_file_would_be_found():
    assert commands("`make coffee` and\nmake tea") == {"coffee", "tea"}
    assert files("see `lib/no/such.py` or `.ci/run`") == {
        "lib/no/such.py",
        ".ci/run",
    }
    assert links("[a](b.md), ![c](d.png), [e](https://f.org)") == {
        "b.md",
        "d.png",
    }
