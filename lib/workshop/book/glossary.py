"""The glossary: the field's terms, each with the chapter that introduces it.

`glossary.toml` holds them; `make pages` writes the page from it.
"""

import re
import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from workshop.book.front_matter import read_chapters
from workshop.chapters import find_chapter

TERMS = Path(__file__).with_name("glossary.toml")
LIBRARY = Path(__file__).parents[2]
CHAPTERS = Path("chapters")
HIDDEN = re.compile(
    r"^---\n.*?^---$|^```.*?^```$|<details>.*?</details>",
    re.DOTALL | re.MULTILINE,
)
NEEDED = {"name", "other", "says", "chapter"}
HEAD = """# Glossary

The terms of the field that this book teaches, in the order of its chapters.
Each has the chapter that introduces it and, where code builds it, the module.

"""


@dataclass(frozen=True)
class Term:
    """One term of the field.

    Attributes:
        name: as the book writes it.
        other: names under which a reader may know it.
        says: what it means, in one or two sentences.
        chapter: the chapter that introduces it.
        module: what builds it; None where no code does.
        forms: how it reads in a sentence, if not as its names.
    """

    name: str
    other: tuple[str, ...]
    says: str
    chapter: str
    module: str | None = None
    forms: tuple[str, ...] = ()

    def used_in(self, text: str) -> bool:
        """Tell whether the prose of a text uses the term or another name.

        Code, the alternative texts in it, and folded solutions do not count.
        """
        plain = normalize_dashes(HIDDEN.sub(" ", text))
        return any(
            re.search(rf"\b{re.escape(name)}s?\b", plain, re.IGNORECASE)
            for name in map(normalize_dashes, (self.name, *self.other, *self.forms))
        )


def normalize_dashes(text: str) -> str:
    """Return a text in which every dash within words is a hyphen."""
    return re.sub(r"[\u2010-\u2014]", "-", " ".join(text.split()))


def read_terms(data: dict, known: set[str]) -> list[Term]:
    """Return the terms of a glossary in the order of their chapters.

    Args:
        data: the glossary's file, read.
        known: names of the book's chapters.

    Raises:
        ValueError: naming the term and what is missing or wrong.
    """
    terms: list[Term] = []
    for entry in data["term"]:
        name = entry.get("name", "?")
        if missing := sorted(NEEDED - entry.keys()):
            raise ValueError(f"the term {name!r} has no {', '.join(missing)}")
        lists = {key: tuple(entry.get(key, ())) for key in ("other", "forms")}
        term = Term(**(entry | lists))
        require_place(term, known)
        if any(term.name.lower() == one.name.lower() for one in terms):
            raise ValueError(f"the term {name!r} occurs twice")
        terms.append(term)
    return sorted(terms, key=lambda term: term.chapter)


def require_place(term: Term, known: set[str]) -> None:
    """Refuse a term whose chapter or module does not fit.

    Raises:
        ValueError: naming the term, and what was given.
    """
    if term.chapter not in known:
        raise ValueError(
            f"the term {term.name!r} has the chapter {term.chapter!r}, which "
            f"is none of {sorted(known)}"
        )
    if term.module is None:
        return
    path = LIBRARY / term.module.replace(".", "/")
    if not (path.with_suffix(".py").exists() or path.is_dir()):
        raise ValueError(
            f"the term {term.name!r} has the module {term.module}, which is not there"
        )


def write_glossary() -> str:
    """Return the page."""
    chapters = {front.slug: front for front in read_chapters(CHAPTERS)}
    data = tomllib.loads(TERMS.read_text("utf8"))
    parts = [HEAD]
    for slug, terms in groupby(
        read_terms(data, {*chapters}), key=lambda term: term.chapter
    ):
        front = chapters[slug]
        parts.append(f"## {front.title}\n\n")
        parts += [write_term(term, front.number) for term in terms]
    return "".join(parts).rstrip() + "\n"


def write_term(term: Term, number: int) -> str:
    """Return one term as the page shows it."""
    where = f"[Chapter {number}]({term.chapter}.ipynb)"
    if term.module:
        package = term.module.split(".")[1]
        where += f"; [`{term.module}`](reference/{package}.md)"
        if find_chapter(term.module) != term.chapter:
            built = int(find_chapter(term.module)[:2])
            where += f", built in chapter {built}"
    known = f" Also: {', '.join(term.other)}." if term.other else ""
    return f"### {term.name}\n\n{term.says}{known} {where}.\n\n"
