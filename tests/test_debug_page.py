"""The code of the page "Debug my attention" runs and prints what stands there.

`python tests/test_debug_page.py` writes what it prints into the page.
"""

import contextlib
import io
import re
from pathlib import Path

import torch

from attnbook import diagnose

PAGE = Path(__file__).parents[1] / "chapters/debug.md"
FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)


def executed(text):
    """Return the page with every `text` block as its code prints it."""
    names, printed = {}, io.StringIO()

    def block(found):
        nonlocal printed
        kind, body = found.groups()
        if kind == "text":
            said, printed = printed.getvalue(), io.StringIO()
            return f"```text\n{said}```"
        with contextlib.redirect_stdout(printed):
            exec(compile(body, str(PAGE), "exec"), names)
        return found.group()

    with torch.random.fork_rng(devices=[]):
        return FENCE.sub(block, text)


def test_the_page_prints_what_it_shows():
    text = PAGE.read_text("utf8")
    assert executed(text) == text, "run python tests/test_debug_page.py"


def test_the_page_shows_every_test_there_is():
    text = PAGE.read_text("utf8")
    for name in diagnose.__all__:
        assert re.search(rf"\b{name}\(", text), name


if __name__ == "__main__":
    PAGE.write_text(executed(PAGE.read_text("utf8")), "utf8")
