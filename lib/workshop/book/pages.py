"""What `make pages` writes from the library: it runs code that the build must not.

The page of named mistakes, the README's table of chapters and, in the chapters,
heading, card, setup cell and folded solutions.
"""

from pathlib import Path

from workshop.book.front_matter import (
    list_chapters,
    read_chapters,
    write_opening,
    write_table,
)
from workshop.book.mistakes import write_mistakes
from workshop.book.notebook import copy_prose, fill_cells, write_if_changed

CHAPTERS = Path("chapters")
README = Path("README.md")


def main() -> None:
    chapters = read_chapters(CHAPTERS)
    write_if_changed(CHAPTERS / "mistakes.md", write_mistakes())
    table = list_chapters(chapters, f"{CHAPTERS}/")
    write_if_changed(README, write_table(README.read_text("utf8"), table))
    for front in chapters:
        path = CHAPTERS / f"{front.slug}.md"
        write_if_changed(path, write_opening(path.read_text("utf8"), front))
        fill_cells(path)
        print(f"{path}: {copy_prose(path)}")


if __name__ == "__main__":
    main()
