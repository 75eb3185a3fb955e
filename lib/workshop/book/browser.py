"""The Chromium that tests the pages."""

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")
# The second to fourth keep it from asking other hosts for updates.
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)
