"""Highlighted code: fewer marks, the same text."""

import html
import re

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from workshop.book import code

SOURCE = '''\
@wraps
def f(x: int = 3) -> str:  # a < b
    """Say it."""
    return f"{x:>{3}}\\n" if x is not None else 'a' "b"
'''


def highlight_source(formatter):
    page = highlight(SOURCE, PythonLexer(), formatter)
    return re.search(r"<pre>(.*)</pre>", page, re.S)[1]


def test_the_text_stays_the_same():
    text = re.sub(r"<[^>]+>", "", highlight_source(code.CodeFormatter()))
    assert html.unescape(text) == SOURCE


def test_only_coloured_code_is_marked_and_only_once():
    lean = highlight_source(code.CodeFormatter())
    kinds = re.findall(r'<span class="(\w+)">', lean)
    assert {*kinds} <= {*code.KINDS}
    assert len(kinds) < 0.6 * highlight_source(HtmlFormatter()).count("<span")
    assert not re.search(r'<span class="(\w+)">[^<]*</span><span class="\1">', lean)
    assert '<span class="k">def</span> <span class="nf">f</span>(x' in lean
