"""What a page weighs, whom it may ask, and in which order its parts come.

These read the built pages without a browser; `make book` comes first.
"""

import re

import pytest

from built_pages import HTML, PAGES
from workshop.book.mounts import MOUNTED
from workshop.book.page_context import POLICY
from workshop.book.weights import list_requests, sum_by_kind

pytestmark = pytest.mark.browser

each_page = pytest.mark.parametrize("page", [HTML / name for name in PAGES], ids=PAGES)


def tags(page, name):
    return re.findall(rf"<{name}\b[^>]*>", page.read_text("utf8"))


MOST = 100 * 1024  # bytes without figures


@each_page
def test_a_first_visit_loads_at_most_100_kb_and_250_kb_of_figures(page):
    sizes = sum_by_kind(page)
    assert sizes.pop("figures", 0) <= 250_000
    assert sizes.total() <= MOST, sizes


@each_page
def test_every_file_of_a_page_is_local(page):
    assert all(path.is_file() for path in list_requests(page))


@each_page
def test_a_page_requests_no_other_host(page):
    text = page.read_text("utf8")
    policies = re.findall(
        r'http-equiv="Content-Security-Policy" content="([^"]+)"', text
    )
    assert policies == [POLICY]
    assert not re.search(r"https?:|\*", POLICY)
    # The policy holds for what comes after it.
    assert text.index("Content-Security-Policy") < text.index("<title>")


@each_page
def test_scripts_are_deferred(page):
    for tag in tags(page, "script"):
        assert "src=" not in tag or "defer" in tag, tag
    assert not re.search("mathjax|fontawesome|require", str(tags(page, "script")))


@each_page
def test_pictures_have_a_size_and_load_lazily(page):
    for tag in tags(page, "img"):
        assert re.search(r'width="\d+" height="\d+"', tag), tag
        assert 'loading="lazy"' in tag, tag


def test_every_file_in_the_build_is_used_by_a_page():
    used = set().union(*(list_requests(HTML / name) for name in PAGES))
    for name in PAGES:  # scripts that are loaded near their widget
        widgets = MOUNTED.findall((HTML / name).read_text("utf8"))
        used |= {HTML / f"_static/widgets/{x}.js" for x in widgets}
    for folder in ("_static", "_images"):
        shipped = {p for p in (HTML / folder).rglob("*") if p.is_file()}
        assert shipped - used == set()
