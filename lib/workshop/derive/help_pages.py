"""Read the paragraphs of LibreOffice's help, paired by their `id`.

Source: HTML pages of the Debian packages libreoffice-help-en-us and -fr.
"""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

VOID = {"base", "br", "col", "hr", "img", "input", "link", "meta"}
BLOCK = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}


class Paragraphs(HTMLParser):
    """Collects the text of every paragraph that has an `id` of the help.

    A page holds a wording per operating system, all marked hidden; we keep
    the one whose `id` starts with "default".
    """

    def __init__(self):
        """Start without paragraphs."""
        super().__init__(convert_charrefs=True)
        self.texts: dict[str, str] = {}
        self._open: list[tuple[str, str | None, bool]] = []

    def handle_starttag(self, tag, attrs):
        """Enter an element; remember its paragraph and whether it shows."""
        if tag in VOID:
            self.handle_data(" ")
            return
        attributes = dict(attrs)
        name = attributes.get("id") or ""
        _, paragraph, shown = self._open[-1] if self._open else ("", None, True)
        if "hidden" in attributes and not name.startswith("default"):
            shown = False
        if tag in BLOCK and name.startswith(("par_", "hd_")):
            paragraph = name
        self._open.append((tag, paragraph, shown))

    def handle_endtag(self, tag):
        """Leave an element, and all that were left open inside it."""
        if any(tag == opened for opened, _, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data):
        """Add text to the paragraph around it."""
        _, paragraph, shown = self._open[-1] if self._open else ("", None, True)
        if paragraph and shown:
            self.texts[paragraph] = self.texts.get(paragraph, "") + data


def read_paragraphs(page: str) -> dict[str, str]:
    """Return the text of each paragraph of a page by its `id`."""
    parser = Paragraphs()
    parser.feed(page)
    parser.close()
    return parser.texts


def pair_paragraphs(english: Path, french: Path) -> Iterator[tuple[str, str]]:
    """Yield the paragraphs that both folders have, page by page."""
    for path in sorted(english.rglob("*.html")):
        twin = french / path.relative_to(english)
        if twin.exists():
            ours = read_paragraphs(path.read_text("utf-8"))
            theirs = read_paragraphs(twin.read_text("utf-8"))
            for name in (name for name in ours if name in theirs):
                yield ours[name], theirs[name]
