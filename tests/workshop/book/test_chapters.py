"""The chapters: text and notebook agree, outputs are those of the code."""

import contextlib
import io
import re
from pathlib import Path

import jupytext
import nbformat
import pytest
import torch

from attnbook.exercises import before_you_start
from workshop.book.front_matter import read_chapters, write_opening
from workshop.book.mistakes import write_mistakes
from workshop.book.repository import read_address, set_cell, set_config
from workshop.book.solutions import find_exercises, refresh_solutions, write_solution

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "chapters"
NOTEBOOKS = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))
PAGES = sorted(FOLDER.glob("*.md"))
each_chapter = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)


def read_cells(path):
    return [(c.cell_type, c.source.rstrip()) for c in jupytext.read(path).cells]


def read_code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    return [c for c in notebook.cells if c.cell_type == "code"]


@each_chapter
def test_a_notebook_and_its_text_agree(path):
    name = path.stem
    same = read_cells(path) == read_cells(path.with_suffix(".md"))
    assert same, f"{name}.ipynb differs from {name}.md: make notebook NAME={name}"


@each_chapter
def test_every_cell_was_executed_in_order_without_error(path):
    found = [c for c in read_code_cells(path) if c.source.strip()]
    assert [c.execution_count for c in found] == [*range(1, len(found) + 1)]
    assert "error" not in {o.output_type for c in found for o in c.outputs}


@each_chapter
def test_what_is_compared_prints_few_digits(path):
    """The last digits of a float differ between processors."""
    for cell in read_code_cells(path):
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            continue
        for output in cell.outputs:
            data = output.get("data", {})
            text = output.get("text", "") or data.get("text/plain", "")
            assert not re.search(r"\d\.\d{5,}", text), (text, cell.source)


@each_chapter
def test_the_setup_cell_asks_for_the_address_of_the_repository(path):
    first, *rest = read_code_cells(path)
    assert first.metadata["tags"] == ["setup", "hide-input"]
    assert first.source.startswith("# @title ")
    assert not any("setup" in c.metadata.get("tags", []) for c in rest)
    address = read_address(ROOT)
    assert set_cell(first.source, address) == first.source
    config = (ROOT / "_config.yml").read_text("utf8")
    assert set_config(config, address) == config


@each_page
def test_links_to_files_work_on_github_and_in_jupyter(path):
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf8"))
    for link in re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", text):
        target = FOLDER / link.partition("#")[0]
        assert target.is_file(), link
        assert not re.fullmatch(r"\d\d_\w+\.md", target.name), link


@each_page
def test_no_line_of_a_paragraph_is_a_list_or_a_comment_by_accident(path):
    """MyST reads `1. `, `1) ` and `%` at the start of a line in this way."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf8"))
    assert not re.findall(r"(?m)^(?![-#>|:]| *\d+[.)]).+[^:\n]\n1[.)] .*$", text)
    assert not re.findall(r"(?m)^.+\n *%.*$", text)


@pytest.mark.parametrize("front", read_chapters(FOLDER), ids=lambda x: x.slug)
def test_heading_level_and_minutes_follow_the_front_matter(front):
    text = (FOLDER / f"{front.slug}.md").read_text("utf8")
    assert write_opening(text, front) == text, "make pages"


FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)
EXECUTED = ("debug", "errata")


def execute(page):
    """Return the page with every `text` block as its code prints it."""
    names, printed = {}, io.StringIO()

    def write_block(found):
        nonlocal printed
        kind, body = found.groups()
        if kind == "text":
            message, printed = printed.getvalue(), io.StringIO()
            return f"```text\n{message}```"
        with contextlib.redirect_stdout(printed):
            exec(compile(body, str(page), "exec"), names)
        return found.group()

    with torch.random.fork_rng(devices=[]):
        return FENCE.sub(write_block, page.read_text("utf8"))


@pytest.mark.parametrize("name", EXECUTED)
def test_outputs_on_a_page_without_a_notebook_are_those_of_its_code(name):
    """`python tests/workshop/book/test_chapters.py` writes them."""
    page = FOLDER / f"{name}.md"
    assert execute(page) == page.read_text("utf8")


STUB = re.compile(r"raise NotImplementedError\n+(check_\w+)\(\w+\)\n```")
STALE = """from attnbook.exercises.before_you_start import check_softmax

<details>
<summary>Solution of <code>check_softmax</code></summary>

an older one

</details>
"""


def test_the_page_of_mistakes_is_fresh():
    page = FOLDER / "mistakes.md"
    assert page.read_text("utf8") == write_mistakes(), "run `make pages`"


@each_chapter
def test_solutions_stars_and_minutes_are_those_of_the_exercises(path):
    text = path.with_suffix(".md").read_text("utf8")
    assert refresh_solutions(text) == text, "run `make pages`"
    for name in STUB.findall(text):
        exercise = find_exercises(text)[name]
        message = f"{'★' * exercise.stars} · {exercise.minutes} minutes"
        before = text[: text.index(f"{name}(my")]
        assert re.findall(r"★+ · \d+ minutes", before)[-1] == message, name


def test_a_stale_solution_is_replaced():
    fresh = refresh_solutions(STALE)
    assert "an older one" not in fresh
    assert write_solution("check_softmax", before_you_start.check_softmax) in fresh
    assert "def softmax(" in fresh
    assert refresh_solutions(fresh) == fresh


if __name__ == "__main__":
    for name in EXECUTED:
        page = FOLDER / f"{name}.md"
        page.write_text(execute(page), "utf8")
