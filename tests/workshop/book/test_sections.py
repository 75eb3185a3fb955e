"""Core and deeper sections: marked, timed, and told apart on the page."""

import re
from pathlib import Path

import pytest

from small_site import build_site, read_body
from workshop.book.front_matter import (
    FrontMatter,
    list_chapters,
    write_minutes,
    write_opening,
)
from workshop.book.sections import (
    compute_core_minutes,
    find_faults,
    read_sections,
    require_marks,
)
from workshop.chapters import read_table, read_unfinished

pytestmark = pytest.mark.precision

CHAPTERS = sorted((Path(__file__).parents[3] / "chapters").glob("[0-9][0-9]_*.md"))
TEXT = """---
chapter: {}
---

# A topic: what is asked?

Two words.

## By hand *(core)*

One two three four.

```{code-cell} ipython3
# not a heading
## neither
1 + 1
```

```{code-cell} ipython3
:tags: [proof]

# @title Checked: one
assert 1
```

### Precision *(deeper)*

One two.

### Back again

One.

## More *(deeper)*

One two three.

### Still deeper

## One step *(core)*

## Exercises

### Exercise 1

## Sources
"""
PAGE = """\
# A page

## By hand *(core)*

### Precision *(deeper)*

a

## More *(deeper)*

### Still deeper

## One `step` *(core)*

## Last *(deeper)*

## Exercises
"""


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_every_section_of_a_finished_chapter_is_marked(path):
    if path.stem not in read_unfinished():
        assert find_faults(path.read_text("utf8")) == []


def test_unfinished_chapters_are_chapters():
    assert read_unfinished() <= {path.stem for path in CHAPTERS}
    assert "unfinished" not in read_table().values()


def test_sections_are_read_with_their_words_and_open_cells():
    found = {x.title: (x.kind, x.words, x.cells) for x in read_sections(TEXT)}
    assert found == {
        "": ("core", 7, 0),
        "By hand": ("core", 4, 1),
        "Precision": ("deeper", 2, 0),
        "Back again": ("core", 1, 0),
        "More": ("deeper", 3, 0),
        "Still deeper": ("deeper", 0, 0),
        "One step": ("core", 0, 0),
        "Exercises": ("standing", 0, 0),
        "Exercise 1": ("standing", 0, 0),
        "Sources": ("standing", 0, 0),
    }


def test_a_section_knows_its_address_and_its_reading_time():
    section = read_sections(TEXT)[1]
    assert (section.anchor, section.minutes) == (
        "by-hand-core",
        4 / 120 + 1 / 4,
    )


def test_3000_words_and_40_open_cells_take_35_minutes():
    cell = "```{code-cell} ipython3\n1\n```\n"
    assert compute_core_minutes(f"## A *(core)*\n{'word ' * 3000}\n{cell * 40}") == 35
    more = f"## B *(deeper)*\n{'word ' * 3000}\n{cell * 40}"
    assert compute_core_minutes(f"## A *(core)*\n{'word ' * 1200}\n{more}") == 10
    assert compute_core_minutes("## A\n\nNothing is marked.") is None


def test_a_section_without_a_mark_is_named():
    assert find_faults(TEXT) == []
    (fault,) = find_faults(TEXT.replace("More *(deeper)*", "More"))
    assert "the section 'More' is neither core nor deeper" in fault


def test_a_core_that_is_too_long_is_refused():
    (fault,) = find_faults(f"## A *(core)*\n{'word ' * 4300}")
    assert fault == "the core has 36 minutes, at most 35"
    cells = "```{code-cell} ipython3\n1\n```\n" * 41
    assert "41 cells, at most 40" in find_faults(f"## A *(core)*\n{cells}")[0]


def test_the_build_names_chapter_and_heading(tmp_path, monkeypatch):
    errors = pytest.importorskip("sphinx.errors")

    class Application:
        srcdir = tmp_path

    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters/07_masks.md").write_text("## A\n\n## B *(core)*\n")
    monkeypatch.setattr("workshop.book.sections.read_unfinished", frozenset)
    with pytest.raises(errors.ExtensionError, match=r"07_masks.md: .*'A'"):
        require_marks(Application)
    unfinished = frozenset({"07_masks"})
    monkeypatch.setattr("workshop.book.sections.read_unfinished", lambda: unfinished)
    require_marks(Application)


def test_the_card_says_how_long_the_core_takes():
    front = FrontMatter("12_t", "T", "what?", 50, "basic", False, 15, 30)
    message = "30 minutes for the core, 50 with the deeper sections"
    assert write_minutes(front) == message
    card = "# T\n\n- *Level*: basic.\n- *Time*: 9 minutes to read, 2 more for "
    text = write_opening(f"{card}the exercises.", front)
    assert f"- *Time*: {message}, 15 more for the exercises." in text
    assert write_opening(text, front) == text


def test_a_chapter_without_deeper_sections_has_one_time():
    front = FrontMatter("12_t", "T", "what?", 30, "basic", False, 15, 30)
    assert write_minutes(front) == "30 minutes to read"
    assert "| 30 minutes, exercises 15 |" in list_chapters([front], times=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    made = build_site(folder, PAGE, ["sections", "translator"])
    assert made.returncode == 0, made.stderr
    return folder


def test_headings_get_a_label_and_deeper_ones_a_link_past_them(site):
    made = read_body(site)
    assert "<em>(" not in made
    assert made.count('<span class="depth core">core</span>') == 2
    assert made.count('<span class="depth deeper">deeper</span>') == 3
    to = (
        '<p class="past"><a href="#one-step-core">'
        "Skip to the next core section: One step</a></p>"
    )
    assert made.count(to) == 2
    assert '<p class="past"><a href="#exercises">Skip to: Exercises' in made
    assert made.index("Precision") < made.index(to) < made.index("<p>a</p>")
    assert '<h2>Exercises<a class="headerlink"' in made


def test_contents_name_what_is_deeper(site):
    page = (site / "out/index.html").read_text("utf8")
    listed = page.partition('role="navigation"')[2]
    assert re.search(r"#by-hand-core\">By hand ?</a>", listed)
    assert 'More <span class="depth deeper">deeper</span></a>' in listed
