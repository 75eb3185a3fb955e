"""Every built page as a reader meets it; `make book` comes first.

A page is opened once, from a file, where browsers allow the least: read to its
end in the light, in the dark and on a phone. What is wrong on it is collected and
shown together. test_reading.py opens pages over http.
"""

import gzip
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from accessibility import COLOURS, run_axe
from built_pages import CHAPTERS, HTML, OVERFLOW, PAGES, read_to_end

pytestmark = pytest.mark.browser
each_page = pytest.mark.parametrize("name", PAGES)
each_chapter = pytest.mark.parametrize("name", CHAPTERS)

PHONE = {"width": 390, "height": 800}
UNMOUNTED = """() => [...document.querySelectorAll("[data-book-widget]")].filter(
  (e) => e.dataset.state !== "ready"
).map((e) => `${e.dataset.bookWidget} ${e.dataset.state}`)"""
# As after reading to the end: far parts are laid out. Nothing fades in.
AT_REST = """
  section { content-visibility: visible !important; }
  * { transition: none !important; }
"""


def read(name):
    return (HTML / name).read_text("utf8")


# Two thirds of a chapter's elements are pieces of code, at which axe would look
# one by one; `test_coloured_code_has_enough_contrast` does so on one page.
PLAIN_CODE = """() => {
  for (const pre of document.querySelectorAll("article pre"))
    pre.textContent = pre.textContent;
}"""


@each_page
def test_a_page_works_in_light_and_dark_and_fits_a_phone(opened, name):
    page = opened(name, HTML.as_uri() + "/", reduced_motion="reduce")
    read_to_end(page)
    found = {"widgets": page.evaluate(UNMOUNTED)}
    page.add_style_tag(content=AT_REST)
    page.evaluate(PLAIN_CODE)
    found["light"] = run_axe(page)
    page.emulate_media(color_scheme="dark")
    found["dark"] = run_axe(page, COLOURS)
    page.set_viewport_size(PHONE)
    found["phone"] = page.evaluate(OVERFLOW)
    found["log"] = page.wrong
    assert {where: wrong for where, wrong in found.items() if wrong} == {}


@each_page
def test_a_page_reads_without_scripts(scriptless, name):
    scriptless.goto((HTML / name).as_uri())
    assert len(scriptless.locator("main").inner_text()) > 20
    for place in scriptless.locator("[data-book-widget]").all():
        assert len(place.inner_text().strip()) > 40


@cache
def list_anchors(path):
    return {*re.findall(r'\b(?:id|name)="([^"]+)"', path.read_text("utf8"))}


@each_page
def test_every_link_and_picture_is_there(name):
    here = HTML / name
    for link in set(re.findall(r'\b(?:href|src)="([^"]+)"', read(name))):
        if re.match(r"[a-z]+:|//|#$", link) or "<" in link:
            continue
        path, anchor = urldefrag(link)
        place = urljoin(here.as_uri(), path.split("?")[0])
        target = Path(unquote(place.removeprefix("file://")))
        assert target.exists(), f"{name} links to {link}"
        if anchor and target.suffix == ".html":
            assert unquote(anchor) in list_anchors(target), f"{name} links to {link}"


def list_loaded(page):
    """Return the files that a page and its styles load at a first visit."""
    found, unread = set(), [page]
    while unread:
        path = unread.pop()
        found.add(path)
        text = path.read_text("utf8") if path.suffix in {".html", ".css"} else ""
        if path.suffix == ".html":
            tags = " ".join(re.findall(r"<(?:script|img|link|source)\b[^>]*>", text))
            names = re.findall(r'\b(?:src|href)="([^"]+)"', tags)
        else:
            names = re.findall(r"url\([\"']?([^)\"']+)", text)
        for name in names:
            if re.match(r"\w+:", name):
                continue
            target = (path.parent / unquote(name.split("?")[0])).resolve()
            if target.suffix != ".html" and target not in found:
                unread.append(target)
    return found


@each_page
def test_a_first_visit_loads_at_most_130_kb_without_figures(name):
    sizes = {
        path.name: len(gzip.compress(path.read_bytes(), 6))
        for path in list_loaded(HTML / name)
        if "_images" not in path.parts
    }
    assert sum(sizes.values()) <= 130_000, sizes


@each_chapter
def test_formulas_need_no_script_and_the_notebook_can_be_downloaded(name):
    article = read(name).split("<article")[1].split("</article>")[0]
    prose = re.sub(r"<(script|pre|code|math)\b.*?</\1>", "", article, flags=re.S)
    # A formula whose second line begins with a plus is cut in two by a list.
    assert not re.search(r"\$[^$<]+\$|\\[(\[a-z]", prose)
    assert re.search(r'href="[^"]+\.ipynb"', read(name))


def test_old_addresses_and_lost_readers_are_led_on(opened):
    page = opened("index.html")
    page.wait_for_url("**/chapters/index.html")
    assert "chapters/index.html" in read("404.html")


PRINTED = """() => [
  getComputedStyle(document.body).color,
  [...document.querySelectorAll("article *")].filter((e) =>
    ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)
    && e.checkVisibility() && e.scrollWidth > e.clientWidth + 1
  ).map((e) => e.outerHTML.slice(0, 120)),
]"""


@pytest.mark.parametrize("name", CHAPTERS[4:5])
def test_a_page_read_in_the_dark_prints_black_and_whole(opened, name):
    page = opened(name, color_scheme="dark", viewport={"width": 720, "height": 1000})
    read_to_end(page)
    page.emulate_media(media="print")
    assert page.evaluate(PRINTED) == ["rgb(27, 31, 36)", []]
    for what in (".live", ".top", "#menu", "#sections", ".copy", ".turn"):
        assert page.locator(f"{what}:visible").count() == 0
    for place in page.locator("[data-book-widget]").all():
        assert len(place.inner_text().strip()) > 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_coloured_code_has_enough_contrast(opened, scheme):
    page = opened("chapters/debug.html", color_scheme=scheme)
    assert run_axe(page, COLOURS) == []
