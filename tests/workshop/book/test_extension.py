"""The Sphinx extension: what its parts make of a notebook and of a page."""

import html
import json
import re
from types import SimpleNamespace

import pytest
from docutils import nodes
from pygments import highlight
from pygments.lexers import PythonLexer

from small_site import build_site, read_body
from workshop.book import (
    math,
    rewriting,
)
from workshop.book.cell_kinds import copy_texts, fold_cells, open_folded
from workshop.book.code import KINDS, CodeFormatter
from workshop.book.search import BookSearch

pytestmark = pytest.mark.precision

PAGE = """\
# A page of 5 %

The words `a b<c` and [a heading](#by-hand-core); let $x$, ($y$) be $\\frac{1}{2}$.

Let `w`, $w$, $v$ be equal.

|   | head |
|---|---|
| one | `two` |

## By hand *(core)*

### Precision *(deeper)*

a

## More *(deeper)*

## One `step` *(core)*

```python
def f(x):
    return x + 1
```

## Last *(deeper)*

## Exercises
"""


@pytest.fixture(scope="module")
def site_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    made = build_site(folder, PAGE, ["sections", "translator", "code", "math"])
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def body(site_folder):
    return read_body(site_folder)


@pytest.mark.parametrize(
    "written",
    [
        "A page of 5\N{NO-BREAK SPACE}%",
        "The words <code>a b&lt;c</code> and",
        '<div class="table-scroll"><table>',
        '<td class="head"></td>',  # an empty cell heads nothing
        '<pre><span class="k">def</span> <span class="nf">f</span>(x):\n',
        "<mfrac>",
        'href="#one-step-core">Skip to the next core section: One step</a>',
        '<a href="#exercises">Skip to: Exercises',
    ],
)
def test_a_page_is_written_as_its_style_expects(body, written):
    assert written in body


def test_headings_and_contents_say_what_is_deeper(site_folder, body):
    assert len(re.findall('<span title="[^"]+" class="depth core">core', body)) == 2
    assert len(re.findall('<span title="[^"]+" class="depth deeper">deeper', body)) == 3
    assert "<em>(" not in body
    assert body.count('href="#one-step-core">Skip') == 2  # past both deeper ones
    page = (site_folder / "out/index.html").read_text("utf8")
    listed = page.partition('role="navigation"')[2]
    assert re.search(r"#by-hand-core\">By hand ?</a>", listed)
    assert re.search('More <span title="[^"]+" class="depth deeper">deeper', listed)


def test_punctuation_stays_on_the_line_of_its_formula(body):
    together = re.findall(r'<span class="together">(.*?)</span>', body)
    ends = [text.rpartition("</math>")[2] for text in together]
    assert ends == [",", ")", ".", ","]
    assert not re.search(r"</math>([.,)])</span>\1", body)  # none is there twice
    assert "<code>w</code>, <span" in body  # the comma after a name is left alone


def test_highlighting_changes_no_letter_of_the_code():
    source = '@wraps\ndef f(x: int = 3):  # a < b\n    return f"{x:>{3}}\\n"\n'
    page = highlight(source, PythonLexer(), CodeFormatter())
    text = re.search(r"<pre>(.*)</pre>", page, re.S)[1]
    assert html.unescape(re.sub(r"<[^>]+>", "", text)) == source
    assert {*re.findall(r'<span class="(\w+)">', text)} <= {*KINDS}


@pytest.mark.parametrize(
    ("tex", "spaces", "prefixes"),
    [
        (r"v^\top \tanh(x)", 1, 0),
        (r"w_j \ln w_j", 2, 0),
        (r"\exp(-x)", 0, 1),
        (r"|a| - b = -2", 0, 1),
    ],
)
def test_functions_and_signs_are_spaced_as_in_print(tex, spaces, prefixes):
    made = math.convert_to_mathml(tex)
    assert made.count("<mspace") == spaces
    assert made.count('form="prefix"') == prefixes


def test_formulas_side_by_side_are_split_outside_of_groups_only():
    tex = r"a = \{1\}, \qquad \left( b \qquad c \right) \qquad \text{if } d"
    parts = [r"a = \{1\},", r"\left( b \qquad c \right)", r"\text{if } d"]
    assert math.split_formulas(tex) == parts


def test_formulas_of_a_widget_are_rendered_and_its_texts_stay_escaped():
    state = {"prompt": [{"math": "a<b"}, {"text": "</script>"}]}
    text = json.dumps(state).replace("<", "\\u003c")
    mount = f'<script type="application/json">{text}</script>'
    widget = f'<div data-book-widget="quiz">{mount}</div>'
    made = math.render_text(rf'<span class="math">\(y\)</span>{widget}', "page")
    assert "<mi>y</mi>" in made
    inner = made.split('json">')[1].split("</script>")[0]
    assert "<" not in inner
    prompt = json.loads(inner)["prompt"]
    assert prompt[0]["mathml"].startswith("<math")
    assert prompt[1] == {"text": "</script>"}


def test_a_broken_formula_stops_the_build_and_says_on_which_page(tmp_path):
    made = build_site(tmp_path, "# A page\n\nThe formula $\\frac{1$ here.\n", ["math"])
    assert made.returncode != 0
    assert "index.md" in made.stderr
    assert "KaTeX cannot read" in made.stderr
    assert "Traceback" not in made.stderr


def make_cell(source, *tags, outputs=()):
    return {
        "cell_type": "code",
        "source": source.splitlines(keepends=True),
        "metadata": {"tags": list(tags)},
        "outputs": list(outputs),
    }


def test_folded_cells_say_what_they_do_and_open_their_code():
    run = "key_rotation: `python -m workshop.experiments key_rotation`, 2 minutes"
    load = make_cell("# @title Load a run\nrun = load()", "plumbing")
    load["outputs"] = [{"output_type": "stream", "text": [f"{run}\n"]}]
    ask = make_cell("# @title Predict first: what?\npredict()", "plumbing")
    draw = make_cell("# @title Figure: x < 1\nshow(run)", "plumbing")
    ask["outputs"] = draw["outputs"] = [{"output_type": "display_data"}]
    proof = make_cell("# @title Checked: x < 1\nassert x < 1", "proof")
    cells = [make_cell("x = 0"), load, ask, draw, proof]
    opened, ask, draw, proof = fold_cells({"cells": cells})["cells"]
    assert opened["metadata"] == {"tags": []}
    assert "remove-input" in ask["metadata"]["tags"]
    assert draw["source"] == f"# Load a run\nrun = load()\n# {run}\n\nshow(run)"
    assert proof["source"] == "assert x < 1"
    made = []
    for cell in (draw, proof):
        node = nodes.container("", nodes.Text(cell["source"]))
        node["prompt_show"] = cell["metadata"]["mystnb"]["code_prompt_show"]
        tags = [f"tag_{x}" for x in cell["metadata"]["tags"]]
        nodes.container("", node, classes=tags)
        translator = SimpleNamespace(body=[])
        open_folded(translator, node)
        made.append("".join(translator.body).strip())
    assert made == [
        '<details class="folded plumbing"><summary title="Figure: x &lt; 1">'
        "Code and recorded run<span>: Figure: x &lt; 1</span></summary>",
        '<details class="folded proof"><summary title="Checked: x &lt; 1">'
        "✓<span>Checked: x &lt; 1</span></summary>",
    ]


@pytest.mark.refusal
def test_a_folded_cell_without_a_title_is_named():
    with pytest.raises(ValueError, match=r"cell 0 is tagged plumbing but .*load"):
        fold_cells({"cells": [make_cell("load(x)", "plumbing")]})


@pytest.mark.refusal
def test_a_figure_needs_an_alternative_text():
    picture = {"data": {"image/png": ""}, "metadata": {"image/png": {}}}
    cell = make_cell("show()", outputs=[picture])
    with pytest.raises(ValueError, match="1 figures"):
        copy_texts({"cells": [cell]})
    picture["metadata"]["image/png"]["alt"] = "error grows"
    carried = copy_texts({"cells": [cell]})["cells"][0]
    assert carried["metadata"]["mystnb"]["image"]["alt"] == "error grows"


def test_all_pages_are_written_again_when_a_heading_has_changed():
    """Each page lists the titles of all, and its links must still lead somewhere."""
    contents = {"one": nodes.paragraph("", "Attention"), "two": nodes.paragraph()}
    env = SimpleNamespace(tocs=contents, found_docs={"one", "two"})
    assert rewriting.list_outdated(None, env) == []
    assert rewriting.list_outdated(None, env) == []
    contents["one"] = nodes.paragraph("", "Self-attention")
    assert rewriting.list_outdated(None, env) == ["one", "two"]


def test_names_are_found_by_their_words():
    words = BookSearch({}).split("attend(is_causal=True, key_2)")
    assert words == ["attend", "is", "causal", "True", "key", "2"]
