"""Elements that nothing needs leave; every word stays."""

import re

import pytest

from built_pages import HTML, PAGES
from workshop.book.markup import shorten_markup

pytestmark = pytest.mark.precision

CODE = (
    '<code class="docutils literal notranslate"><span class="pre">a</span> '
    '<span class="pre">b&lt;c</span></code>'
)
LINK = f'<a href="x.html"><span class="std std-doc">{CODE}</span></a>'


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (CODE, "<code>a b&lt;c</code>"),
        (LINK, '<a href="x.html"><code>a b&lt;c</code></a>'),
        ('<td class="z"><p>one</p>\n</td>', '<td class="z">one</td>'),
        ("<td><p>one</p><p>two</p></td>", "<td><p>one</p><p>two</p></td>"),
        ("<li><p>one</p></li>", "<li><p>one</p></li>"),
        ('<pre><span class="k">if</span></pre>', None),
        (
            '<script type="text/x-thebe-config">{a: 1}</script>\n'
            "    <script>kernelName = 'python3'</script><p>b</p>",
            "<p>b</p>",
        ),
        ('<script type="application/json">{}</script>', None),
    ],
)
def test_unneeded_markup_is_removed(given, left):
    assert shorten_markup(given) == (given if left is None else left)
    assert shorten_markup(shorten_markup(given)) == shorten_markup(given)


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_no_page_starts_a_kernel_or_has_unneeded_wrappers(name):
    text = (HTML / name).read_text("utf8")
    assert "thebe" not in text.partition("<article>")[2]
    assert not re.search(r"<td[^>]*><p>[^<]*</p>\s*</td>", text)
    assert 'class="pre"' not in text
