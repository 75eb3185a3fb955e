"""The index of diagrams: complete, and its links lead to the files."""

import json
import re
from pathlib import Path

import pytest

from built_pages import HTML
from workshop.book.diagrams import list_diagrams, write_diagrams, write_link

pytestmark = pytest.mark.precision

CHAPTERS = Path("chapters")


def make_notebook(folder, source):
    """Write a notebook with a heading and a cell that shows a diagram."""
    picture = {"data": {"image/svg+xml": "<svg/>"}}
    cells = [
        {"cell_type": "markdown", "source": "## By hand *(core)*"},
        {"cell_type": "code", "source": source, "outputs": [picture]},
    ]
    path = folder / "12_topic.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return path


def test_every_diagram_of_every_chapter_is_listed():
    rows = write_diagrams().splitlines()[2:]
    stored = [
        output
        for path in CHAPTERS.glob("[0-9][0-9]_*.ipynb")
        for cell in json.loads(path.read_text("utf8"))["cells"]
        for output in cell.get("outputs", [])
        if "image/svg+xml" in output.get("data", {})
    ]
    assert len(rows) == len(stored) > 60
    linked = {re.search(r"\[SVG\]\((\d\d)_", row)[1] for row in rows}
    assert linked == {x.name[:2] for x in CHAPTERS.glob("[0-9][0-9]_*.md")}


def test_a_diagram_is_listed_with_its_title_and_section(tmp_path):
    path = make_notebook(tmp_path, "# @title Diagram: one step\nshow()")
    (found,) = list_diagrams(path)
    assert (found.title, found.section) == ("one step", "By hand *(core)*")


@pytest.mark.refusal
def test_a_diagram_without_a_title_is_named(tmp_path):
    path = make_notebook(tmp_path, "show()")
    with pytest.raises(ValueError, match=r"12_topic.ipynb.*'By hand"):
        list_diagrams(path)


def test_a_link_has_a_name_to_save_and_says_what_it_leads_to():
    link = write_link("12_topic", 3, "a.svg", "One & only").astext()
    assert 'href="../_images/a.svg" download="12_topic-diagram-3.svg"' in link
    assert 'aria-label="SVG: One &amp; only"' in link


@pytest.mark.browser
def test_every_link_leads_to_the_diagram_of_that_name():
    text = (HTML / "chapters/teaching.html").read_text("utf8")
    found = re.findall(r'href="\.\./(_images/[^"]+\.svg)" download="([^"]+)"', text)
    assert len(found) == write_diagrams().count("[SVG]")
    for file, name in found:
        chapter = name.partition("-diagram-")[0]
        page = (HTML / f"chapters/{chapter}.html").read_text("utf8")
        assert f'href="../{file}" download="{name}"' in page
