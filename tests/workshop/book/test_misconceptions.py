"""The misconceptions: each has its cell, its chapter and its exercise.

What their cells print is held by test_executed_pages.py.
"""

import re
from pathlib import Path

import pytest

from workshop.book.catalogue import list_entries
from workshop.book.misconceptions import (
    PAGE,
    find_faults,
    read_misconceptions,
    require_parts,
)

pytestmark = pytest.mark.precision

CHAPTERS = Path(__file__).parents[3] / "chapters"
TEXT = (CHAPTERS / PAGE).read_text("utf8")
FOUND = read_misconceptions(TEXT)
CHAPTER = """# A topic

## By hand *(core)*

## Exercises

### Exercise 1: sums

check_sums(my_sums)
"""
SECTION = """# Page

## Part

### “All sums are 1”

*Where it occurs.* In [a text](https://example.org).

*Why it is tempting.* They often are.

*What is true.* Not all ([chapter 12](12_topic.ipynb#by-hand-core)).

```python
print(1 + 1)
assert 1 + 1 == 2
```

```text
2
```

*The exercise that catches it.*
[Exercise 1](12_topic.ipynb#exercise-1-sums): `check_sums` names it `all-one`.
"""


def test_there_are_22_and_none_lacks_a_part():
    assert len({one.belief for one in FOUND}) == 22
    assert find_faults(TEXT, CHAPTERS) == []


@pytest.mark.parametrize("one", FOUND, ids=lambda x: x.belief)
def test_the_exercise_knows_the_mistake_by_the_name_that_is_given(one):
    known = {
        mistake.slug
        for entry in list_entries()
        if (entry.chapter, entry.name) == (one.exercise[0], one.check)
        for mistake in entry.exercise.mistakes
    }
    assert {*one.slugs} <= known


def test_most_chapters_refute_one():
    linked = {*re.findall(r"\((\d\d)_\w+\.ipynb#", TEXT)}
    assert linked >= {"02", "04", "05", "06", "07", "08", "09", "10", "11"}


@pytest.fixture
def chapters(tmp_path):
    (tmp_path / "12_topic.md").write_text(CHAPTER)
    return tmp_path


def test_a_complete_section_has_no_fault(chapters):
    assert find_faults(SECTION, chapters) == []


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("*Where it occurs.*", "", "no part *Where it occurs.*"),
        ("(https://example.org)", "", "no address of a place where it"),
        ("*Why it is tempting.*", "", "no part *Why it is tempting.*"),
        ("*What is true.*", "", "no part *What is true.*"),
        ("assert 1 + 1 == 2\n", "", "no cell that asserts"),
        ("```text\n2\n```\n", "", "no cell that prints"),
        ("12_topic.ipynb#by-hand-core", "glossary.md", "no link to a chapter"),
        ("#by-hand-core", "#by-foot-core", "by-foot-core, which is no section"),
        ("topic.ipynb#by-hand", "task.ipynb#by-hand", "task, which is no chap"),
        ("12_topic.ipynb#exercise-1-sums", "mistakes.md", "an exercise"),
        ("#exercise-1-sums", "#by-hand-core", "asks check_sums: it does not"),
        ("`check_sums`", "It", "names no check"),
        (" names it `all-one`", "", "names no mistake"),
    ],
)
def test_what_a_section_lacks_is_named_with_the_belief(chapters, old, new, fault):
    assert SECTION.count(old) == 1
    faults = find_faults(SECTION.replace(old, new), chapters)
    assert any(fault in x for x in faults), faults
    assert all(x.startswith("'All sums are 1' ") for x in faults)


@pytest.mark.refusal
def test_the_build_stops_and_names_page_and_belief(chapters):
    errors = pytest.importorskip("sphinx.errors")

    class Application:
        srcdir = chapters.parent / "book"

    Application.srcdir.mkdir()
    chapters.rename(Application.srcdir / "chapters")
    page = Application.srcdir / "chapters" / PAGE
    require_parts(Application)  # a book without the page
    page.write_text(SECTION)
    require_parts(Application)
    page.write_text(SECTION.replace("`check_sums`", "It"))
    message = rf"{PAGE}: 'All sums are 1' names no check"
    with pytest.raises(errors.ExtensionError, match=message):
        require_parts(Application)
