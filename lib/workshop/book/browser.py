"""Browser: the Chromium that prints, measures and tests the pages."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
# The second to fourth keep it from asking other hosts for updates.
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOW_TO_GET_ONE = """\
There is no Chromium on this machine. Install one:
  Debian:  sudo apt install chromium
  Ubuntu:  sudo snap install chromium
  Fedora:  sudo dnf install chromium
  macOS:   brew install --cask google-chrome
It has to be on the PATH as one of: {names}."""


def find_chromium() -> str | None:
    """Return the path of an installed Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def require_chromium() -> str:
    """Return the path of an installed Chromium or Chrome.

    Raises:
        FileNotFoundError: if there is none; the message says how to get one
    """
    found = find_chromium()
    if found is None:
        raise FileNotFoundError(HOW_TO_GET_ONE.format(names=", ".join(NAMES)))
    return found


@contextmanager
def open_browser_or_exit() -> Iterator["Browser"]:
    """Yield a browser without a window; without one, exit and say so."""
    try:
        chromium = require_chromium()
    except FileNotFoundError as problem:
        sys.exit(str(problem))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        yield browser
        browser.close()
