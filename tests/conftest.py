"""What every test needs: one thread; a browser or a GPU for those that ask.

REQUIRE_BROWSER=1 turns a missing Chromium from a skipped test into a failure.
What only the browser's fixtures need is imported in them: the tests marked
`cuda` are collected on GPU machines that have torch and pytest and little else.
"""

import gc
import os
import sys
from functools import cache

import pytest

from built_pages import HTML, find_page, serve, visit, watch
from exercise_order import put_exercises_together
from numeric import is_numeric
from workshop.book.browser import FLAGS, find_chromium

os.environ.setdefault("OMP_NUM_THREADS", "1")

STAGE = {"width": 900, "height": 800}

# The first widget's state as soon as it has one.
MOUNTED = """(patience) => new Promise((then) => {
  const place = document.querySelector("[data-book-widget]");
  const tell = () => place.dataset.state && then(place.dataset.state);
  new MutationObserver(tell).observe(place, { attributes: true });
  setTimeout(() => then("no state"), patience);
  tell();
})"""


def pytest_configure():
    """Leave the grammar out where every call's types are checked.

    It has no arrays, mypy checks its types, and its 22,000 sentences would
    take a worker 20 seconds.
    """
    for finder in sys.meta_path:
        if asked := getattr(finder, "should_instrument", None):
            finder.should_instrument = lambda name, asked=asked: (
                not name.startswith("attnbook.data.grammar") and asked(name)
            )


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without Python's garbage collector; then leave them out.

    It would search the imported packages and all tests again and again, which
    takes two fifths of the time of a collection, and would go on to do so in
    every test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item):
    """Mark numeric tests."""
    if is_numeric(item):
        item.add_marker(pytest.mark.numeric)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of one page on one worker, which visits it once.

    Tests of no page are grouped by file, because several tests share what was
    measured on one widget.

    pytest-xdist 3.8 has no effect on the names of pytest 9.2's tests, so its
    own groups (`--dist loadgroup`) are spread over all workers.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class PageScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            page = find_page(nodeid)
            return page or nodeid.partition("::")[0]

    return PageScheduling(config, log)


def pytest_collection_modifyitems(items):
    """Order the tests of exercises; skip those that lack a GPU."""
    items[:] = put_exercises_together(items)
    skip_without_gpu(items)


def skip_without_gpu(items):
    """Skip the tests marked `cuda` where there is no NVIDIA GPU."""
    asked = [item for item in items if item.get_closest_marker("cuda")]
    if not asked:
        return
    import torch

    if torch.cuda.is_available() and torch.version.cuda:
        return
    skip = pytest.mark.skip(
        reason="PyTorch sees no NVIDIA GPU on this machine: `make gpu` runs "
        "these tests on one"
    )
    for item in asked:
        item.add_marker(skip)


@pytest.fixture(scope="session")
def browser():
    chromium = find_chromium()
    if chromium is None:
        why = "no Chromium on this machine: the built pages were not opened"
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        yield made
        made.close()


@cache
def surroundings():
    """Return what every page with one widget begins and ends with."""
    from attnbook.widgets.module import read_modules
    from workshop.book.mounts import MOUNT, WIDGETS, make_classic_script

    scripts = "".join(
        f"<script>{make_classic_script(stem, text)}</script>"
        for stem, text in read_modules().items()
    )
    styles = "".join(
        f"<style>{style.read_text('utf8')}</style>" for style in WIDGETS.glob("*.css")
    )
    head = f'<!doctype html><html lang="en"><meta charset="utf8">{styles}'
    return head, f"{scripts}<script>{MOUNT.read_text('utf8')}</script>"


@pytest.fixture(scope="session")
def stage(browser):
    """One context and one page, which tests use one after another."""
    context = browser.new_context(viewport=STAGE)
    context.set_default_timeout(5000)
    yield listening(context.new_page())
    context.close()


def listening(page):
    """Let a page note what it complains of."""
    page.wrong = []
    page.on("console", lambda m: page.wrong.append(m.text))
    page.on("pageerror", lambda e: page.wrong.append(str(e)))
    return page


def cleared(page):
    """Make a used page as good as new: a new page takes four times longer."""
    page.mouse.up()
    page.mouse.move(0, 0)
    page.goto("about:blank")
    if page.viewport_size != STAGE:
        page.set_viewport_size(STAGE)
    page.emulate_media(media="null", color_scheme="light", reduced_motion="null")
    page.wrong = []


@pytest.fixture
def shown(browser, stage, tmp_path):
    """Open a page with one widget on it; note what it complains of.

    The first page of a test is the one that the tests before it used, made
    blank again. `own=True` gives a page of its own to a test that changes
    more than a page (the browser's clock); `around` is HTML in which `{}`
    stands for the widget.
    """
    from attnbook.widgets.mount import render_mount
    from fonts import make_style

    contexts = []
    used = []

    def page_for(own):
        if not own and not used:
            used.append(stage)
            return stage
        contexts.append(browser.new_context(viewport=STAGE))
        contexts[-1].set_default_timeout(5000)
        return listening(contexts[-1].new_page())

    def open_page(
        state,
        stem="alignment_player",
        copies=1,
        face="wide",
        own=False,
        around="{}",
    ):
        head, tail = surroundings()
        file = tmp_path / "page.html"
        mounts = render_mount(stem, state, "<p>fallback</p>") * copies
        file.write_text(
            f"{head}<title>page</title>{make_style(face)}<body>"
            f"{around.replace('{}', mounts)}{tail}",
            "utf8",
        )
        page = page_for(own)
        page.goto(file.as_uri())
        found = page.evaluate(MOUNTED, 5000)
        assert (found, page.wrong) == ("ready", [])
        return page

    yield open_page
    for context in contexts:
        context.close()
    for page in used:
        cleared(page)


@pytest.fixture(scope="session")
def http_root():
    with serve() as address:
        yield address


@pytest.fixture(scope="session")
def visits(browser, http_root):
    """Visit each page once in a way, http or file, for many tests."""
    size = {"width": 1280, "height": 900}
    context = browser.new_context(viewport=size, color_scheme="light")

    @cache
    def made(way, name):
        from page_report import read_states, report_page

        root = HTML.as_uri() + "/" if way == "file" else http_root
        # A page that leads elsewhere leads us to the book's first one.
        page = visit(watch(context, root), root + name)
        found = report_page(page, name) if way == "http" else {}
        found |= {"states": read_states(page), "wrong": page.wrong}
        # Nothing a visit leaves behind meets the next one.
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        page.close()
        return found

    yield made
    context.close()


@pytest.fixture(scope="session")
def scriptless(browser):
    """A page whose browser runs no scripts."""
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


@pytest.fixture
def opened(browser, http_root):
    """Open a page to do something with it."""
    contexts = []

    def open_page(name, root=http_root, **options):
        options = {"viewport": {"width": 1280, "height": 900}} | options
        contexts.append(browser.new_context(**options))
        return visit(watch(contexts[-1], root), root + name)

    yield open_page
    for context in contexts:
        context.close()
