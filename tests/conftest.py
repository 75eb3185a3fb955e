"""What every test needs: one thread; and a browser, for those that ask.

REQUIRE_BROWSER=1 turns a missing Chromium from a skipped test into a failure.
"""

import os
import shutil
from functools import cache

import pytest

from attnbook.book.mounts import MOUNT, WIDGETS, classic
from attnbook.widgets.base import mount
from attnbook.widgets.module import modules
from built import HTML, PAGES, served, visit, watched

os.environ.setdefault("OMP_NUM_THREADS", "1")

CHROMIUM = next(
    filter(
        None,
        map(shutil.which, ("chromium", "chromium-browser", "google-chrome")),
    ),
    None,
)
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_itemcollected(item):
    """Keep the tests of one page together, so that one visit serves them."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if params.get("name") in PAGES and hasattr(item.config, "workerinput"):
        item.add_marker(pytest.mark.xdist_group(params["name"]))


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        why = "no Chromium on this machine: the built pages were not opened"
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def shown(browser, tmp_path):
    """Open a page with one widget on it; note what it complains of."""
    context = browser.new_context(viewport={"width": 900, "height": 800})
    context.set_default_timeout(5000)
    scripts = "".join(
        f"<script>{classic(stem, text)}</script>"
        for stem, text in modules().items()
    )
    styles = "".join(
        f"<style>{style.read_text('utf8')}</style>"
        for style in WIDGETS.glob("*.css")
    )

    def open_page(state, stem="alignment_player", copies=1):
        file = tmp_path / "page.html"
        file.write_text(
            '<!doctype html><html lang="en"><meta charset="utf8">'
            f"<title>page</title>{styles}<body>"
            f"{mount(stem, state, '<p>fallback</p>') * copies}{scripts}"
            f"<script>{MOUNT.read_text('utf8')}</script>",
            "utf8",
        )
        page = context.new_page()
        page.wrong = []
        page.on("console", lambda m: page.wrong.append(m.text))
        page.on("pageerror", lambda e: page.wrong.append(str(e)))
        page.goto(file.as_uri())
        page.wait_for_selector("[data-state]", state="attached")
        state = page.get_attribute("[data-book-widget]", "data-state")
        assert (state, page.wrong) == ("ready", [])
        return page

    yield open_page
    context.close()


@pytest.fixture(scope="session")
def http_root():
    with served() as address:
        yield address


@pytest.fixture(scope="session")
def visits(browser, http_root):
    """Visit each page once in a way, http or file, for many tests."""

    @cache
    def made(way, name):
        from looks import seen, states

        root = HTML.as_uri() + "/" if way == "file" else http_root
        size = {"width": 1280, "height": 900}
        context = browser.new_context(viewport=size, color_scheme="light")
        # A page that leads elsewhere leads us to the book's first one.
        page = visit(watched(context, root), root + name)
        found = seen(page, name) if way == "http" else {}
        found |= {"states": states(page), "wrong": page.wrong}
        context.close()
        return found

    return made


@pytest.fixture
def opened(browser, http_root):
    """Open a page to do something with it."""
    contexts = []

    def open_page(name, root=http_root, **options):
        options = {"viewport": {"width": 1280, "height": 900}} | options
        contexts.append(browser.new_context(**options))
        return visit(watched(contexts[-1], root), root + name)

    yield open_page
    for context in contexts:
        context.close()
