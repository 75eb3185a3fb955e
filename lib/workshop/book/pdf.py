"""Pdf: the whole book as one file, printed by a headless Chromium.

`make pdf` joins the articles of the built pages into one document and prints it
at least twice: after the first time, the page of each heading is known, and the
contents can name it. No script runs, so widgets and quizzes are printed as the
figure, table or text that stands for them, and a folded proof as its one line.
The solutions and answers of the chapters stand at the end of the book; links
lead to them and back.

Source: printing to PDF in the protocol of Chromium's developer tools,
    https://chromedevtools.github.io/devtools-protocol/tot/Page/#method-printToPDF
"""

import re
import sys
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

from workshop.book.browser import open_browser_or_exit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

STYLE = Path(__file__).parent / "theme" / "pdf.css"
FIRST = "chapters/index.html"
CHAPTER = re.compile(r"chapters/\d\d_")
ENDNOTES = "solutions-and-answers"
# The attributes that name ids of the same page.
NAMING = ("aria-labelledby", "aria-describedby", "for", "headers")
PASSES = 4


@dataclass
class Page:
    """A built page.

    Attributes:
        name: its path in the folder of the book, such as
            `chapters/01_bottleneck.html`
        part: the caption of its part of the contents; empty for the first page
        article: what it says, without navigation
        styles: the style sheets that it loads, as paths in the folder
    """

    name: str
    part: str
    article: Tag
    styles: list[str]

    @property
    def key(self) -> str:
        """The id of the page in the joined document."""
        return self.name.removesuffix(".html").replace("/", "-")

    @property
    def title(self) -> str:
        """The text of its first heading, after the number of a chapter."""
        text, over = (
            read_heading(self.article.h1),
            self.article.select_one(".over"),
        )
        number = re.fullmatch(r"Chapter (\d+)", over.get_text()) if over else None
        return f"{number[1]}. {text}" if number else text


def read_heading(heading: Tag | None) -> str:
    """Return the text of a heading without its mark and the link to itself."""
    if heading is None:
        return ""
    links = {id(x) for x in heading.select(".headerlink, .depth.core")}
    texts = (
        text
        for text in heading.find_all(string=True)
        if not any(id(parent) in links for parent in text.parents)
        and not text.find_parent("annotation")
    )
    return " ".join("".join(texts).split())


def read_pages(folder: Path) -> list[Page]:
    """Return the pages of a built book in the order of its menu.

    Args:
        folder: the built HTML, with `chapters/index.html`

    Raises:
        FileNotFoundError: if a page is not there
        ValueError: if a page has no article
    """
    first = parse(folder / FIRST)
    names = {FIRST: ""}
    for caption in first.select("#menu p.part"):
        for link in caption.find_next("ul").select("a[href]"):
            name = urlsplit(urljoin(FIRST, str(link["href"]))).path
            names.setdefault(name, caption.get_text())
    pages = []
    for name, part in names.items():
        soup = parse(folder / name)
        if soup.article is None:
            raise ValueError(f"{folder / name} has no <article> to print")
        styles = soup.find_all("link", rel="stylesheet")
        loaded = [urljoin(name, str(link["href"])) for link in styles]
        pages.append(Page(name, part, soup.article, loaded))
    return pages


def parse(path: Path) -> BeautifulSoup:
    """Return a built page, parsed."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: build the book with `make book` first"
        )
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def locate(folder: Path, name: str) -> str:
    """Return the address of a file of the built book."""
    return f"{folder.resolve().as_uri()}/{name}"


def move_addresses(page: Page, known: dict[str, str], folder: Path) -> None:
    """Let ids, links and images of a page hold in the joined document.

    Args:
        page: is changed in place
        known: the key of each page by its name
        folder: the built HTML
    """
    article = page.article
    for tag in article.find_all(id=True):
        tag["id"] = f"{page.key}--{tag['id']}"
    article["id"] = page.key
    for name in NAMING:
        for tag in article.find_all(attrs={name: True}):
            ids = tag[name] if isinstance(tag[name], list) else tag[name].split()
            tag[name] = " ".join(f"{page.key}--{x}" for x in ids)
    for tag in article.find_all(["img", "source"]):
        tag.attrs.pop("loading", None)
        for name in ("src", "srcset"):
            if name in tag.attrs and not tag[name].startswith("data:"):
                tag[name] = locate(folder, urljoin(page.name, str(tag[name])))
    for link in article.find_all("a", href=True):
        to = urlsplit(urljoin(page.name, str(link["href"])))
        if to.scheme:
            continue
        key = known.get(to.path)
        if key is None:  # a file beside the pages: the printed book has none
            link.attrs.pop("href")
        else:
            link["href"] = f"#{key}--{unquote(to.fragment)}".removesuffix("--")
    for script in article.find_all("script"):
        script.decompose()


def take_endnotes(pages: list[Page], numbers: dict[str, int]) -> str:
    """Move the solutions and answers of the chapters to the end of the book.

    Elsewhere, and for tables that are folded on a phone, what is folded opens.

    Args:
        pages: are changed in place
        numbers: the page of each id, as far as known

    Returns:
        the HTML of the last section
    """
    chapters: list[str] = []
    count = 0
    for page in pages:
        notes = []
        titles: Counter[str] = Counter()
        for details in page.article.select("details:not(.folded)"):
            summary = details.summary
            if summary is None or not CHAPTER.match(page.name):
                details["open"] = ""
                continue
            count += 1
            note, place = f"note-{count}", f"note-{count}-place"
            above = read_heading(details.find_previous(["h1", "h2", "h3", "h4"]))
            label = summary.get_text()
            titles[above + label] += 1
            if titles[above + label] > 1 or label == "Answer":
                label += f" {titles[above + label]}"
            summary.decompose()
            body = details.decode_contents()
            link = BeautifulSoup(
                f'<p class="to-note" id="{place}"><a href="#{note}">'
                f"{escape(label)}: page {numbers.get(note, '000')}</a></p>",
                "html.parser",
            )
            details.replace_with(link)
            notes.append(
                f'<section class="note" id="{note}"><h3>{escape(above)}. '
                f'<a href="#{place}">{escape(label)}</a></h3>{body}</section>'
            )
        if notes:
            chapters.append(f"<h2>{escape(page.title)}</h2>{''.join(notes)}")
    return (
        f'<article id="{ENDNOTES}"><h1>Solutions and answers</h1>'
        f"{''.join(chapters)}</article>"
    )


def list_contents(pages: list[Page], numbers: dict[str, int]) -> str:
    """Return the contents: parts, pages, and the sections of the chapters.

    Args:
        pages: with the addresses of the joined document
        numbers: the page of each id; one that is missing is printed as 000
    """

    def make_line(kind: str, key: str, text: str) -> str:
        return (
            f'<li class="{kind}"><a href="#{escape(key)}">'
            f"<span>{escape(text)}</span>"
            f"<span>{numbers.get(key, '000')}</span></a></li>"
        )

    lines, part = [], ""
    for page in pages[1:]:
        if page.part != part:
            part = page.part
            lines.append(f'<li class="part">{escape(part)}</li>')
        lines.append(make_line("page", page.key, page.title))
        if CHAPTER.match(page.name):
            for heading in page.article.find_all("h2"):
                section = heading.find_parent("section", id=True)
                if section is not None:
                    text = read_heading(heading)
                    lines.append(make_line("section", section["id"], text))
    lines.append(make_line("page", ENDNOTES, "Solutions and answers"))
    return f"<h2>Contents</h2><ol>{''.join(lines)}</ol>"


def join_pages(folder: Path, numbers: dict[str, int]) -> str:
    """Return one HTML document with the articles of all pages.

    Args:
        folder: the built HTML
        numbers: the page of each id, as far as known

    Raises:
        FileNotFoundError: if a page is not there
        ValueError: if a page has no article
    """
    pages = read_pages(folder)
    known = {page.name: page.key for page in pages}
    for page in pages:
        move_addresses(page, known, folder)
    endnotes = take_endnotes(pages, numbers)
    styles = dict.fromkeys(name for page in pages for name in page.styles)
    first, *others = pages
    sheets = "".join(
        f'<link rel="stylesheet" href="{locate(folder, name)}">' for name in styles
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(first.title)}</title>"
        f"{sheets}<style>{STYLE.read_text('utf-8')}</style></head><body><main>"
        f"{first.article}"
        f'<nav class="contents">{list_contents(pages, numbers)}</nav>'
        f"{''.join(str(page.article) for page in others)}"
        f"{endnotes}</main></body></html>"
    )


def find_numbers(path: Path) -> tuple[dict[str, int], int]:
    """Return the page of each id that a link of a PDF leads to, and its pages.

    Args:
        path: a PDF that Chromium printed
    """
    from pypdf import PdfReader

    reader = PdfReader(path)
    numbers = {
        name.lstrip("/"): 1 + (reader.get_destination_page_number(place) or 0)
        for name, place in reader.named_destinations.items()
    }
    return numbers, len(reader.pages)


def print_book(browser: "Browser", folder: Path, to: Path) -> int:
    """Print a built book and return its number of pages.

    Args:
        browser: a Chromium that Playwright launched
        folder: the built HTML
        to: the PDF to write; the joined document is left beside it

    Raises:
        FileNotFoundError: if a page is not there
        RuntimeError: if the contents do not settle
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    joined = to.with_suffix(".html")
    numbers: dict[str, int] = {}
    for _ in range(PASSES):
        joined.write_text(join_pages(folder, numbers), "utf-8")
        page = browser.new_page(java_script_enabled=False)
        page.set_default_timeout(0)  # hundreds of pages take a while
        page.goto(joined.resolve().as_uri())
        page.pdf(
            path=to,
            prefer_css_page_size=True,
            print_background=True,
            tagged=True,
            outline=True,
        )
        page.close()
        before, (numbers, pages) = numbers, find_numbers(to)
        if numbers == before:
            return pages
    moved = sum(numbers[key] != before.get(key) for key in numbers)
    raise RuntimeError(
        f"after {PASSES} passes the contents still name the page of {moved} of "
        f"{len(numbers)} headings wrongly"
    )


def main() -> None:
    """Print the book and say where it is."""
    folder, to = Path(sys.argv[1]), Path(sys.argv[2])
    with open_browser_or_exit() as browser:
        pages = print_book(browser, folder, to)
    print(f"{pages} pages, {to.stat().st_size / 1e6:.1f} MB: {to.resolve()}")


if __name__ == "__main__":
    main()
