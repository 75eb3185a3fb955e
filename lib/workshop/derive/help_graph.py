"""Derive the graph of LibreOffice's help pages: words and links of each page.

Run it with, on Debian 12,
    apt-get download libreoffice-help-en-us=4:7.4.7-1+deb12u14
    dpkg -x libreoffice-help-en-us_*.deb .
    python -m workshop.derive.help_graph usr/share/libreoffice/help

Source: files/libreoffice/README.md
"""

import re
import sys
from collections import Counter
from pathlib import Path

from workshop.derive import write, write_sums
from workshop.derive.libreoffice import read_paragraphs

WORDS = 1_000
FEWEST, MOST = 5, 800  # pages that a word can occur in
BODY = 'id="DisplayArea"'  # begins what a page says; before it are menus
LINK = re.compile(r'href="([^"#?]+\.html)[#?"]')
WORD = re.compile(r"[a-z]{3,}")


def choose_words(pages: list[set[str]]) -> list[str]:
    """Return the most frequent words that are neither rare nor everywhere."""
    counts = Counter(word for words in pages for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    kept = [word for word in ranked if FEWEST <= counts[word] <= MOST]
    return sorted(kept[:WORDS])


def make_rows(pages: dict[str, str], folder: str) -> tuple[list, list[str]]:
    """Return a row for each page, and the words.

    A row has the page's name, the numbers of the pages that it links to, and
    the numbers of its words, both increasing.
    """
    names = {name: number for number, name in enumerate(pages)}
    texts = {name: " ".join(read_paragraphs(x).values()) for name, x in pages.items()}
    words = {name: set(WORD.findall(text.lower())) for name, text in texts.items()}
    chosen = choose_words([*words.values()])
    numbers = {word: number for number, word in enumerate(chosen)}
    rows = []
    for name, page in pages.items():
        found = LINK.findall(page[page.find(BODY) :])
        targets = {x.removeprefix(folder) for x in found if x.startswith(folder)}
        links = targets & names.keys() - {name}
        columns = (
            sorted(names[x] for x in links),
            sorted(numbers[x] for x in words[name] if x in numbers),
        )
        rows.append("\t".join([name, *(" ".join(map(str, x)) for x in columns)]))
    return rows, chosen


def main(folder: str) -> None:
    text = Path(folder, "en-US/text")
    pages = {
        path.relative_to(text).as_posix(): path.read_text("utf8")
        for path in sorted(text.rglob("*.html"))
    }
    rows, words = make_rows(pages, "en-US/text/")
    write("libreoffice/graph.tsv.bz2", rows)
    write("libreoffice/graph_words.txt", words)
    links = sum(len(row.split("\t")[1].split()) for row in rows)
    print(f"{len(rows)} pages, {links} links, {len(words)} words")
    write_sums()


if __name__ == "__main__":
    main(sys.argv[1])
