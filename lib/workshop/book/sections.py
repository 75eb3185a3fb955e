"""Sections: core or deeper, marked in their headings.

A heading ends in `*(core)*` or `*(deeper)*`, which every reader of notebooks
shows. A subsection without a mark belongs to its section's kind. The page turns
the marks into labels and offers a link past each deeper section. Exercises, quiz,
results and sources need no mark. How long sections take follows from their text.
"""

import re
from dataclasses import dataclass

from docutils import nodes

from workshop.book.cell_kinds import KINDS

MARK = re.compile(r"\s*\*\((core|deeper)\)\*\s*$")
HEADING = re.compile(r"^(##|###) +(.*)$")
STANDING = ("Exercises", "Quiz", "What we measured", "Sources")
# A first reader, fitted to what close readers estimated of chapters 0 to 11.
WORDS_A_MINUTE, SECONDS_A_LINE, SECONDS_A_FIGURE = 75, 3, 30
FIGURE = re.compile(r"# @title (?:Figure|Diagram|Picture|Heat map|Widget|Predict)")
# What is not read as words: formulas, code, targets of links, elements.
NO_WORDS = re.compile(r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)|<[^>]*>")


@dataclass
class Section:
    """What one heading stands over, its subsections not included."""

    title: str  # without its mark; "" for a chapter's opening
    kind: str  # "core", "deeper", "standing", or "" if it is not marked
    words: int = 0  # of prose
    lines: int = 0  # of code that is open
    figures: int = 0  # and predictions


def read_sections(text: str) -> list[Section]:
    """Return a chapter's sections; its opening is the first and core."""
    found, inherited = [Section("", "core")], ""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"(?s)<details>.*?</details>", "", text)
    for number, piece in enumerate(re.split(r"(?m)^```", text)):
        if number % 2:  # between two fences is code
            cell = re.match(r"\{code-cell\}[^\n]*\n(?::tags: \[(.*?)\])?", piece)
            if cell and not {*KINDS} & {*re.split(r",\s*", cell[1] or "")}:
                found[-1].lines += len(re.findall(r"\n[^:\n]", piece))
            found[-1].figures += bool(FIGURE.search(piece))
            continue
        for line in piece.splitlines():
            if heading := HEADING.match(line):
                signs, title = heading.groups()
                kind = inherited if signs == "###" else ""
                kind = kind or ("standing" if title.startswith(STANDING) else "")
                if mark := MARK.search(title):
                    kind = mark[1]
                inherited = kind if signs == "##" else inherited
                found.append(Section(MARK.sub("", title), kind))
            else:
                found[-1].words += len(re.findall(r"[^\W\d_]+", NO_WORDS.sub("", line)))
    return found


def compute_minutes(text: str) -> tuple[int, int]:
    """Return how long a chapter's core takes, and all but its exercises.

    A chapter without marks is all core. Both are multiples of 5.
    """
    sections = [x for x in read_sections(text) if x.kind != "standing"]
    marked = any(x.title and x.kind for x in sections)
    core = [x for x in sections if x.kind == "core" or not marked]

    def add(chosen: list[Section]) -> int:
        words = sum(x.words for x in chosen) / WORDS_A_MINUTE
        lines = sum(x.lines for x in chosen) * SECONDS_A_LINE / 60
        figures = sum(x.figures for x in chosen) * SECONDS_A_FIGURE / 60
        return max(5, 5 * round((words + lines + figures) / 5))

    return add(core), add(sections)


def label_headings(app, doctree) -> None:
    """Give marked headings a label, and deeper ones a way to the next core.

    The mark at the end of a heading becomes an inline node of the classes
    `depth` and `core` or `deeper`. A deeper section's attribute `past` is the
    identifier and the text of the link that the translator writes below it.
    """
    found, inherited = [], ""
    for section in doctree.findall(nodes.section):
        level = count_levels(section)
        if level not in (2, 3):
            continue
        title = section[0]
        marked = replace_mark(title)
        kind = marked or (inherited if level == 3 else "")
        inherited = kind if level == 2 else inherited
        found.append((section, marked, kind))
    for number, (section, marked, kind) in enumerate(found):
        after = [x for x in found[number + 1 :] if x[2] != "deeper"]
        if marked and kind == "deeper" and after:
            target, _, next_kind = after[0]
            section["past"] = (target["ids"][0], say_next(target, next_kind))


def count_levels(section) -> int:
    level = 0
    while isinstance(section, nodes.section):
        section, level = section.parent, level + 1
    return level


def replace_mark(title) -> str:
    """Replace the mark at a title's end by a label; return what it says."""
    mark = title[-1]
    text = mark.astext().strip("()")
    if not isinstance(mark, nodes.emphasis) or text not in ("core", "deeper"):
        return ""
    title.replace(mark, nodes.inline("", text, classes=["depth", text]))
    return text


def say_next(section, kind: str) -> str:
    """Return what a link to the next section that is not deeper says."""
    what = "Skip to the next core section" if kind == "core" else "Skip to"
    title = "".join(
        x.astext()
        for x in section[0]
        if isinstance(x, nodes.Text) or "depth" not in x["classes"]
    )
    return f"{what}: {title.strip()}"


def shorten_contents(app, doctree) -> None:
    """Keep only the label `deeper` in a page's contents."""
    contents = app.env.tocs[app.env.docname]
    for node in [*contents.findall(nodes.inline)]:
        if "core" in node["classes"]:
            heading = node.parent
            heading.remove(node)
            heading[-1] = nodes.Text(heading[-1].rstrip())


def setup(app) -> None:
    app.connect("doctree-read", label_headings, priority=400)
    app.connect("doctree-read", shorten_contents, priority=600)
