"""Browser: the Chromium that prints, measures and tests the pages."""

import shutil

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
