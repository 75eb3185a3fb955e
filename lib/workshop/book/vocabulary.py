"""Vocabulary: phrases that this book once coined, and the field's own terms.

Only phrases that mean one thing are listed; ordinary words such as *text*,
*place* or *hidden* are left to an editor. A chapter, its quiz and the modules
that it builds are read once the chapter is finished; what belongs to no
chapter is read always.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from workshop.chapters import find_chapter, read_unfinished

TERMS = {
    r"the way (?:past|around)\b": "residual (skip) connection",
    r"\b(?:on )?the way back\b": "backward pass, gradient",
    r"\bthe law\b(?! of)": "scaled dot-product attention; the reference",
    r"\bone[- ]law\b": "the test against the reference implementation",
    r"\bmay (?:not )?look\b": "can attend to",
    r"\bmay see\b": "can attend to",
    r"\b(?:network|model|decoder) (?:that|which) (?:writes|says|spells)\b": (
        "decoder that generates; model that predicts"
    ),
    r"\bthe norm (?:after|before)\b": "post-norm, pre-norm",
    r"\bcut at zero\b": "ReLU",
    r"\b(?:words|nats) wrong\b": "word error rate; cross-entropy (nats)",
    r"\bmost held\b|\bwhat it holds\b": "peak memory",
    r"\bwhat is remembered\b": "KV cache",
    r"\blikeness\b": "cosine similarity",
    r"\bsteady attention\b": "attention with QK-norm or soft-capping",
    r"\bseveral strips\b|\bin strips\b|\bstrips of\b": "query chunks, tiling",
}
BACK_MATTER = (
    "README.md",
    *(
        f"chapters/{name}.md"
        for name in (
            "cheat_sheet",
            "debug",
            "errata",
            "evidence",
            "glossary",
            "index",
            "misconceptions",
            "notation",
            "teaching",
        )
    ),
)
DECLARED = (".js", ".md", ".toml")  # widgets and what others declare
PHRASES = [(re.compile(x, re.I), term) for x, term in TERMS.items()]


def find_phrases(text: str) -> list[str]:
    """Return a sentence for each phrase in a text that the field says else."""
    plain = " ".join(text.split())
    return [
        f"{found[0]!r} after {plain[: found.start()][-40:]!r}: write {term}"
        for phrase, term in PHRASES
        for found in phrase.finditer(plain)
    ]


def read_words(source: str) -> str:
    """Return what a module says: its docstrings and its messages."""
    return "\n".join(
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def is_checked(module: str) -> bool:
    """Tell whether the words of a module are held to the field's."""
    try:
        return find_chapter(module) not in read_unfinished()
    except ValueError:  # of several chapters, or of the workshop
        return True


def list_files(root: Path) -> Iterator[str]:
    """Yield every file whose words are checked.

    These are finished chapters, their quizzes, the back matter, modules that no
    unfinished chapter builds, widgets, and declarations (glossary, lessons,
    cost rows, mistakes). The figures' titles and texts stand in the chapters'
    code.
    """
    for path in sorted((root / "chapters").glob("[0-9][0-9]_*.md")):
        if path.stem not in read_unfinished():
            yield str(path.relative_to(root))
            yield f"lib/attnbook/exercises/quizzes/{path.stem}.json"
    yield from BACK_MATTER
    for path in sorted((root / "lib").rglob("*")):
        if path.suffix in DECLARED:
            yield str(path.relative_to(root))
    for path in sorted((root / "lib").rglob("*.py")):
        if path.name == Path(__file__).name:
            continue
        name = ".".join(path.relative_to(root / "lib").with_suffix("").parts)
        name = name.removesuffix(".__init__")
        if is_checked(name):
            yield str(path.relative_to(root))


def read_text(path: Path) -> str:
    """Return a file's text; of a Python module, only its string constants."""
    text = path.read_text("utf8")
    return read_words(text) if path.suffix == ".py" else text
