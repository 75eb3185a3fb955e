"""Sections: core or deeper, marked in their headings.

A heading ends in `*(core)*` or `*(deeper)*`, which every reader of notebooks
shows. A subsection without a mark belongs to its section's kind. The page turns
the marks into labels, says how long the core takes, and offers a link past
each deeper section. Exercises, quiz, results and sources need no mark.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from workshop.book.cell_kinds import KINDS
from workshop.chapters import read_unfinished

MARK = re.compile(r"\s*\*\((core|deeper)\)\*\s*$")
HEADING = re.compile(r"^(##|###) +(.*)$")
STANDING = ("Exercises", "Quiz", "What we measured", "Sources")
WORDS_A_MINUTE, CELLS_A_MINUTE = 120, 4
MOST = {"minutes": 35, "cells": 40}  # of a core


@dataclass
class Section:
    """What one heading stands over, its subsections not included.

    Attributes:
        title: the heading without its mark; "" for a chapter's opening.
        level: 2 or 3, the number of its signs.
        kind: "core", "deeper", "standing", or "" if it is not marked.
        words: of prose.
        cells: of code that is open.
    """

    title: str
    level: int
    kind: str
    words: int = 0
    cells: int = 0


def read_sections(text: str) -> list[Section]:
    """Return a chapter's sections; its opening is the first and core."""
    found, inherited = [Section("", 2, "core")], ""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"(?s)<details>.*?</details>", "", text)
    for number, piece in enumerate(re.split(r"(?m)^```", text)):
        if number % 2:  # between two fences is code
            found[-1].cells += is_open_cell(piece)
            continue
        for line in piece.splitlines():
            if heading := HEADING.match(line):
                section = read_heading(*heading.groups(), inherited)
                if section.level == 2:
                    inherited = section.kind
                found.append(section)
            else:
                found[-1].words += len(re.findall(r"[^\W\d_]+", line))
    return found


def read_heading(signs: str, title: str, inherited: str) -> Section:
    """Return the section that a heading begins."""
    mark, level = MARK.search(title), len(signs)
    if mark:
        return Section(MARK.sub("", title), level, mark[1])
    standing = level == 2 and title.startswith(STANDING)
    kind = "standing" if standing else inherited if level == 3 else ""
    return Section(title, level, kind)


def is_open_cell(piece: str) -> bool:
    """Tell whether a fenced piece of text is a code cell that stays open."""
    found = re.match(r"\{code-cell\}[^\n]*\n(?::tags: \[(.*?)\])?", piece)
    tags = re.split(r",\s*", found[1] or "") if found else []
    return bool(found) and not {*KINDS} & {*tags}


def compute_core_minutes(text: str) -> int | None:
    """Return how long a chapter's core takes; None if nothing is marked."""
    sections = read_sections(text)
    if not any(x.title and x.kind in ("core", "deeper") for x in sections):
        return None
    core = [x for x in sections if x.kind == "core"]
    words, cells = sum(x.words for x in core), sum(x.cells for x in core)
    return math.ceil(words / WORDS_A_MINUTE + cells / CELLS_A_MINUTE)


def find_faults(text: str) -> list[str]:
    """Return a sentence for each way in which a finished chapter's fails."""
    sections = read_sections(text)
    faults = [
        f"the section {section.title!r} is neither core nor deeper: end its "
        "heading in *(core)* or *(deeper)*"
        for section in sections
        if section.level == 2 and not section.kind
    ]
    minutes = compute_core_minutes(text) or 0
    cells = sum(x.cells for x in sections if x.kind == "core")
    for name, value in (("minutes", minutes), ("cells", cells)):
        if value > MOST[name]:
            faults.append(f"the core has {value} {name}, at most {MOST[name]}")
    return faults


def require_marks(app) -> None:
    """Stop the build if a finished chapter has a section without a mark.

    Raises:
        ExtensionError: naming the chapter and the heading.
    """
    from sphinx.errors import ExtensionError

    faults = [
        f"{path.name}: {fault}"
        for path in sorted(Path(app.srcdir).glob("chapters/[0-9][0-9]_*.md"))
        if path.stem not in read_unfinished()
        for fault in find_faults(path.read_text("utf8"))
    ]
    if faults:
        raise ExtensionError("\n".join(faults))


SHOWN = re.compile(
    r'<section id="([^"]+)">\s*(?:<span id="[^"]*"></span>\s*)*'
    r'<h([23])>(.*?)(<a class="headerlink".*?</a>)?</h\2>',
    re.DOTALL,
)
SHOWN_MARK = re.compile(r"\s*<em>\((core|deeper)\)</em>\s*$")


def label_headings(body: str) -> str:
    """Return a page whose marked headings have a label and a link past them."""
    headings, inherited = [], ""
    for match in SHOWN.finditer(body):
        mark = SHOWN_MARK.search(match[3])
        kind = mark[1] if mark else inherited if match[2] == "3" else ""
        inherited = kind if match[2] == "2" else inherited
        title = SHOWN_MARK.sub("", match[3])
        headings.append((match, mark, kind, title))
    for number in reversed(range(len(headings))):
        match, mark, kind, title = headings[number]
        if not mark:
            continue
        after = [x for x in headings[number + 1 :] if x[2] != "deeper"]
        shown = f'{title} <span class="depth {kind}">{kind}</span>'
        past = write_skip_link(after[0]) if kind == "deeper" and after else ""
        begin, end = match.span(3)
        body = (
            body[:begin]
            + shown
            + body[end : match.end()]
            + past
            + (body[match.end() :])
        )
    return body


def write_skip_link(target: tuple) -> str:
    """Return a link to the next section that is not deeper."""
    match, _, kind, title = target
    what = "Skip to the next core section" if kind == "core" else "Skip to"
    return (
        f'\n<p class="past"><a href="#{match[1]}">{what}: '
        f"{re.sub('<[^>]+>', '', title).strip()}</a></p>"
    )


def label_contents(contents: str) -> str:
    """Return a page's contents in which deeper sections say so."""
    contents = contents.replace(" <em>(core)</em>", "")
    return contents.replace(
        "<em>(deeper)</em>", '<span class="depth deeper">deeper</span>'
    )


def label_page(app, pagename, templatename, context, doctree) -> None:
    """Label the sections of a page, and its contents."""
    if context.get("body"):
        context["body"] = label_headings(context["body"])
        book = context["book"]
        book["sections"] = label_contents(book["sections"])


def setup(app) -> None:
    """Connect to Sphinx: before anything is read, and at every page."""
    app.connect("builder-inited", require_marks)
    app.connect("html-page-context", label_page, priority=811)
