"""Size: how much there is to read, printed by `make size`.

Lines of Python by folder, tests, and the words and cells of each chapter. It
informs people; nothing fails when a number grows.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from workshop.book.front_matter import read_chapters

# A file belongs to the first of these that its path begins with.
ROOMS = {
    "lib/attnbook/exercises/": "lib/attnbook/exercises",
    "lib/attnbook/grade/": "lib/attnbook/grade",
    "lib/attnbook/": "lib/attnbook, the rest",
    "lib/workshop/": "lib/workshop",
    "tests/": "tests",
    "": "elsewhere",
}
FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
SOLUTION = re.compile(r"<details>\s*<summary>Solution of .*?</details>", re.DOTALL)
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
QUIZ = re.compile(r"^## Quiz$.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
# What no reader sees: comments, tags and the targets of links.
HIDDEN = re.compile(r"<!--.*?-->|<[^<>\n]*>|(?<=\])\([^()\s]*\)", re.DOTALL)
CELL = re.compile(r"^```\{code-cell\}", re.MULTILINE)


def print_table(rows: Iterable[tuple[str, ...]]) -> None:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        numbers = zip(others, widths[1:], strict=True)
        cells = [first.ljust(widths[0]), *(x.rjust(width) for x, width in numbers)]
        print("  ".join(cells))
    print()


def count_lines(paths: Iterable[Path]) -> Counter[str]:
    found: Counter[str] = Counter(dict.fromkeys(ROOMS.values(), 0))
    for path in paths:
        room = next(x for x in ROOMS if path.as_posix().startswith(x))
        found[ROOMS[room]] += len(path.read_text("utf8").splitlines())
    return found


def count_words(text: str) -> int:
    """Return the words of a chapter's prose: no code, no solutions, no quiz."""
    for pattern in (FRONT, SOLUTION, CODE, QUIZ, HIDDEN):
        text = pattern.sub(" ", text)
    return sum(any(map(str.isalpha, word)) for word in text.split())


def count_tests() -> str:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    done = subprocess.run(
        [*command, "-m", "not browser"], capture_output=True, text=True
    )
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]


def main() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.py"], capture_output=True, text=True, check=True
    )
    paths = (Path(name) for name in listed.stdout.split("\0") if name)
    lines = count_lines(path for path in paths if path.exists())
    lines["together"] = lines.total()
    heading = ("Python", "lines")
    print_table([heading, *((room, f"{count:,}") for room, count in lines.items())])

    table = [("chapter", "words", "cells", "KB", "core", "minutes", "exercises")]
    for front in read_chapters(Path("chapters")):
        path = Path("chapters", f"{front.slug}.md")
        text, notebook = path.read_text("utf8"), path.with_suffix(".ipynb")
        size = notebook.stat().st_size // 1000 if notebook.exists() else 0
        times = (front.core, front.minutes, front.exercises)
        numbers = (count_words(text), len(CELL.findall(text)), size, *times)
        table.append((front.slug, *(f"{number:,}" for number in numbers)))
    print_table(table)
    print(count_tests())


if __name__ == "__main__":
    main()
