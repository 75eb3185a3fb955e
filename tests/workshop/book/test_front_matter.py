"""Front matter: one place for what a chapter says of itself."""

import html
import re
from pathlib import Path

import pytest

from built_pages import HTML
from workshop.book.catalogue import list_entries
from workshop.book.front_matter import (
    FrontMatter,
    list_chapters,
    read_chapters,
    read_front_matter,
    require_front_matter,
    write_opening,
    write_table,
)

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
CHAPTERS = read_chapters(ROOT / "chapters")
WHOLE = {
    "title": "A topic",
    "question": "what is asked?",
    "minutes": "20",
    "level": "basic",
    "gpu": "false",
}
CARD = (
    "# Old heading\n\n- *Level*: advanced.\n- *Time*: 1 minutes to read, 2 "
    "more\n  for the exercises.\n\n★★ · 15 minutes.\n"
)


def chapter(folder, text=CARD, **changes):
    """Write a chapter whose front matter has these changes; None leaves out."""
    message = {k: v for k, v in {**WHOLE, **changes}.items() if v is not None}
    rows = "".join(f"  {key}: {value}\n" for key, value in message.items())
    path = folder / "12_topic.md"
    path.write_text(f"---\njupytext: {{}}\nchapter:\n{rows}---\n\n{text}")
    return path


@pytest.mark.parametrize("front", CHAPTERS, ids=lambda x: x.slug)
def test_heading_level_and_minutes_follow_the_front_matter(front):
    text = (ROOT / f"chapters/{front.slug}.md").read_text("utf8")
    assert write_opening(text, front) == text


def test_the_minutes_of_exercises_are_those_that_are_declared():
    declared = dict.fromkeys((x.slug for x in CHAPTERS), 0)
    for entry in list_entries():
        declared[entry.chapter] += entry.exercise.minutes
    assert declared == {x.slug: x.exercises for x in CHAPTERS}


def test_the_opening_is_written_from_the_front_matter(tmp_path):
    path = chapter(tmp_path)
    front = read_front_matter(path)
    assert front == FrontMatter(
        "12_topic", "A topic", "what is asked?", 20, "basic", False, 15
    )
    text = write_opening(path.read_text(), front)
    assert "# A topic: what is asked?" in text
    assert "- *Level*: basic." in text
    assert "- *Time*: 20 minutes to read, 15 more for the exercises." in text


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"minutes": None}, r"missing are \['minutes'\]"),
        ({"title": None, "gpu": None}, r"missing are \['title', 'gpu'\]"),
        ({"colour": "red"}, r"unknown are \['colour'\]"),
        ({"minutes": "soon"}, "`minutes`.*int and not empty, not 'soon'"),
        ({"minutes": "0"}, "`minutes`.*int and not empty, not 0"),
        ({"title": '""'}, "`title`.*str and not empty, not ''"),
        ({"gpu": "maybe"}, "`gpu`.*bool and not empty, not 'maybe'"),
        ({"level": "expert"}, "the level 'expert' is none of"),
        ({"question": "a statement"}, "'a statement' ends without `\\?`"),
    ],
)
def test_incomplete_front_matter_is_refused_with_its_file(tmp_path, changes, message):
    path = chapter(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"12_topic.md: .*{message}"):
        read_front_matter(path)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("line", "name"),
    [("# Old heading", "heading"), ("- *Level*", "Level"), ("- *T", "Time")],
)
def test_a_chapter_without_a_line_of_its_opening_is_refused(tmp_path, line, name):
    path = chapter(tmp_path, CARD.replace(line, "x"))
    with pytest.raises(ValueError, match=f"12_topic.md has no line .*{name}"):
        write_opening(path.read_text(), read_front_matter(path))


def test_the_table_lists_title_question_and_times():
    front = FrontMatter("12_t", "Topic", "what now?", 20, "basic", False, 15)
    assert list_chapters([front], "chapters/").splitlines()[-1] == (
        "| [12. Topic](chapters/12_t.ipynb) | What now? |"
    )
    assert list_chapters([front], times=True).splitlines()[-1] == (
        "| [12. Topic](12_t.ipynb) | What now? | 20 minutes, exercises 15 |"
    )


@pytest.mark.refusal
def test_a_page_without_markers_for_the_table_is_refused():
    with pytest.raises(ValueError, match="lacks `<!-- chapters: begin"):
        write_table("# A page", "| chapter |")


class Build:
    """What the check of a build needs to know of Sphinx."""

    def __init__(self, srcdir):
        self.srcdir = srcdir


@pytest.mark.parametrize(
    ("changes", "message"),
    [({}, "differ from the front matter"), ({"gpu": None}, "'gpu'")],
)
def test_the_build_stops_at_a_wrong_chapter(tmp_path, changes, message):
    errors = pytest.importorskip("sphinx.errors")
    (tmp_path / "chapters").mkdir()
    chapter(tmp_path / "chapters", **changes)
    with pytest.raises(errors.ExtensionError, match=re.escape(message)):
        require_front_matter(Build(str(tmp_path)))


@pytest.mark.browser
@pytest.mark.parametrize("front", CHAPTERS, ids=lambda x: x.slug)
def test_titles_and_navigation_name_the_topic_first(front):
    page = (HTML / f"chapters/{front.slug}.html").read_text("utf8")
    title = html.unescape(re.search(r"<title>(.*?)</title>", page)[1])
    assert title.startswith(f"{front.title}: {front.question} \u00b7 ")
    menu = re.search(r'<nav id="menu".*?</nav>', page, re.DOTALL)[0]
    for other in CHAPTERS:
        assert f"<span>{other.title}: {other.question}</span>" in menu
