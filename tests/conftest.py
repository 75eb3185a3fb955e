"""What every test needs: one thread; and a browser, for those that ask.

REQUIRE_BROWSER=1 turns a missing Chromium from a skipped test into a failure.
"""

import os
import shutil

import pytest

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
