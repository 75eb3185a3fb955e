"""The pages' HTML has no element that nothing needs; every word stays."""

import re

import pytest

from built_pages import HTML, PAGES
from small_site import build_site, read_body

TEXT = """\
# A page of 5 %

The words `a b<c` and [a heading](#by-hand), [`code`](#by-hand).

- one

|   | head |
|---|---|
| one | `two` |

## By hand

```python
def f(x):
    return x + 1
```
"""
PARTS = ("translator", "code")
LINK = '<a class="headerlink" href="#by-hand" title="Link to this section"'


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    made = build_site(folder, TEXT, PARTS)
    assert made.returncode == 0, made.stderr
    return read_body(folder)


@pytest.mark.parametrize(
    "written",
    [
        "The words <code>a b&lt;c</code> and",
        'href="#by-hand">a heading</a>',
        "<code>code</code></a>",
        '<div class="table-scroll"><table>',
        '<tr><th class="head">head</th>',
        "<tr><td>one</td>\n<td><code>two</code></td>",
        "<li><p>one</p></li>",
        f'{LINK} aria-label="Link to this section">#</a></h2>',
        '<pre><span class="k">def</span> <span class="nf">f</span>(x):\n',
    ],
)
def test_markup_has_one_element_for_each_thing(body, written):
    flat = body.replace('<td class="head"></td>\n', "")
    assert written in flat


def test_an_empty_cell_heads_nothing(body):
    assert '<td class="head"></td>' in body
    assert not re.search(r"<th[^>]*></th>", body)


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_no_page_starts_a_kernel_or_has_unneeded_wrappers(name):
    text = (HTML / name).read_text("utf8")
    assert "thebe" not in text.partition("<article>")[2]
    assert not re.search(r"<td[^>]*><p>[^<]*</p>\s*</td>", text)
    assert 'class="pre"' not in text


def test_a_number_and_its_percent_sign_stay_on_one_line(body):
    assert "A page of 5\N{NO-BREAK SPACE}%" in body
