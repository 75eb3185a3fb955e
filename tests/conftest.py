"""What every test needs: one thread; a browser or a GPU for those that ask.

REQUIRE_BROWSER=1 turns a missing Chromium from a skipped test into a failure.
What only the browser's fixtures need is imported in them: the tests marked
`cuda` are collected on GPU machines that have torch and pytest and little else.
"""

import os

import pytest

from workshop.book.browser import FLAGS, find_chromium

os.environ.setdefault("OMP_NUM_THREADS", "1")

DESK = {"width": 1280, "height": 900}
STAGE = {"width": 900, "height": 800}
# The first widget's state as soon as it has one.
MOUNTED = "() => document.querySelector('[data-book-widget]').dataset.state"


def pytest_collection_modifyitems(items):
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


@pytest.fixture
def shown(browser, tmp_path):
    """Open a page with one widget on it; `page.wrong` notes its complaints.

    `around` is HTML in which `{}` stands for the widget.
    """
    from built_pages import write_widget_page

    context = browser.new_context(viewport=STAGE)
    context.set_default_timeout(5000)

    def open_page(state, stem, copies=1, around="{}"):
        file = tmp_path / "page.html"
        file.write_text(write_widget_page(state, stem, copies, around), "utf8")
        page = context.new_page()
        page.wrong = []
        page.on("console", lambda m: page.wrong.append(m.text))
        page.on("pageerror", lambda e: page.wrong.append(str(e)))
        page.goto(file.as_uri())
        assert page.wait_for_function(MOUNTED).json_value() == "ready"
        assert page.wrong == []
        return page

    yield open_page
    context.close()


@pytest.fixture(scope="session")
def http_root():
    from built_pages import serve

    with serve() as address:
        yield address


@pytest.fixture
def opened(browser, http_root):
    """Open a built page, over http unless told."""
    from built_pages import watch

    contexts = []

    def open_page(name, root=http_root, **options):
        contexts.append(browser.new_context(**{"viewport": DESK} | options))
        page = watch(contexts[-1], root)
        page.goto(root + name)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def scriptless(browser):
    """A page whose browser runs no scripts."""
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()
