"""The code of the pages without a notebook runs and prints what stands there.

`python tests/workshop/book/test_executed_pages.py` writes what it prints into
the pages.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

from attnbook import diagnose

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "chapters/debug.md",
    ROOT / "chapters/errata.md",
    ROOT / "chapters/misconceptions.md",
]
FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)


def executed(page):
    """Return the page with every `text` block as its code prints it."""
    names, printed = {}, io.StringIO()

    def block(found):
        nonlocal printed
        kind, body = found.groups()
        if kind == "text":
            message, printed = printed.getvalue(), io.StringIO()
            return f"```text\n{message}```"
        with contextlib.redirect_stdout(printed):
            exec(compile(body, str(page), "exec"), names)
        return found.group()

    with torch.random.fork_rng(devices=[]):
        return FENCE.sub(block, page.read_text("utf8"))


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_outputs_on_a_page_are_those_of_its_code(page):
    text = page.read_text("utf8")
    assert executed(page) == text, (
        "run python tests/workshop/book/test_executed_pages.py"
    )


def test_the_page_on_debugging_shows_every_diagnosis():
    text = PAGES[0].read_text("utf8")
    for name in diagnose.__all__:
        assert re.search(rf"\b{name}\(", text), name


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(executed(page), "utf8")
