"""Cells that assert and cells that draw are folded, and say what they do."""

import json
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from workshop.book.cell_kinds import (
    close_folded,
    find_faults,
    find_kind,
    fold_cells,
    open_folded,
    read_title,
)
from workshop.book.cell_names import find_names, find_needed_later
from workshop.chapters import read_unfinished

pytestmark = pytest.mark.precision

CHAPTERS = sorted((Path(__file__).parents[3] / "chapters").glob("[0-9][0-9]_*.ipynb"))
PROOF = "# @title Checked: x is 1\nassert x == 1"


def code(source, *tags, outputs=()):
    return {
        "cell_type": "code",
        "source": source.splitlines(keepends=True),
        "metadata": {"tags": list(tags)},
        "outputs": list(outputs),
    }


def faults(*cells):
    return find_faults([code("x = 1"), *cells])


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_no_chapter_has_an_open_cell_that_only_asserts(path):
    cells = json.loads(path.read_text("utf8"))["cells"]
    assert find_faults(cells, path.stem not in read_unfinished()) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_titles_fit_on_the_line_that_is_shown(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if find_kind(cell.metadata.get("tags", [])) != "open":
            assert 10 < len(read_title(cell.source)) <= 105


CHECKS = (
    "assert x == 1",
    "y = x + 1\nassert y == 2",
    "import math\nassert math.exp(0) == x",
    "for y in range(3):\n    assert y < 3",
)


@pytest.mark.parametrize(
    "source", [*CHECKS, "def f():\n    return 1\n\n\nassert f() == x"]
)
def test_a_proof_may_have_a_small_setup(source):
    title = "# @title Checked: x is 1\n"
    assert faults(code(title + source, "proof")) == []


@pytest.mark.parametrize("source", [*CHECKS, "assert x == 1  # and a comment"])
def test_an_open_cell_that_only_asserts_is_refused_by_its_number(source):
    (message,) = faults(code(source))
    assert message.startswith("cell 1 (")
    assert source.splitlines()[0] in message
    assert "only asserts but has no tag: add `:tags: [proof]`" in message


@pytest.mark.parametrize(
    "source",
    [
        "print(x)\nassert x == 1",
        "y = x + 1\nassert y == 2\ny",
        "x.data[0] = 3\nassert x",
        "y = x + 1",
    ],
)
def test_a_cell_that_shows_or_changes_something_may_stay_open(source):
    assert faults(code(source)) == []


def test_a_cell_that_a_later_cell_needs_may_stay_open():
    asserting = code("y = x + 1\nassert y == 2")
    assert faults(asserting, code("print(y)")) == []
    assert faults(asserting, code("y = 3\nprint(y)")) != []


@pytest.mark.parametrize(
    "source",
    [
        "import math\nassert math.exp(0) == x",
        "from math import exp as power\nassert power(0) == x",
        "import os.path\nassert os.path.sep",
    ],
)
def test_an_import_that_a_later_cell_needs_excuses_no_cell(source):
    cells = [code("x = 1"), code(source), code("print(math, power, os)")]
    (message,) = find_faults(cells)
    assert "only asserts but has no tag" in message
    assert find_faults(cells, finished=False) == []


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([code("assert x == 1", "proof")], "does not begin with `# @title"),
        ([code("load(x)", "plumbing")], "plumbing but does not begin with"),
        ([code(PROOF, "plumbing")], "plumbing but only asserts"),
        ([code("# @title\nload(x)", "plumbing")], "does not begin with"),
        (
            [code("# @title x is 1\nassert x == 1", "proof")],
            "lacks `Checked: `",
        ),
        ([code("# @title Checked: x\ny = x", "proof")], "asserts nothing"),
        ([code(f"{PROOF}\nprint(x)", "proof")], "calls print()"),
        ([code(f"{PROOF}\nshow_figure(x, 'a')", "proof")], "show_figure()"),
        ([code(PROOF, "proof", outputs=[{}])], "has an output"),
        (
            [code(f"{PROOF}\ny = 2", "proof"), code("print(y)")],
            "later cells need its ['y']",
        ),
    ],
)
def test_a_folded_cell_that_does_something_else_is_refused(cells, message):
    (found,) = faults(*cells)
    assert message in found


def test_the_build_names_chapter_and_cell():
    errors = pytest.importorskip("sphinx.errors")
    from workshop.book.cell_kinds import fold_notebook

    class Application:
        class env:  # noqa: N801
            @staticmethod
            def doc2path(name):
                return f"{name}.ipynb"

    text = [json.dumps({"cells": [code("x = 1"), code("assert x == 1")]})]
    with pytest.raises(errors.ExtensionError, match="03_luong: cell 1 "):
        fold_notebook(Application, "chapters/03_luong", text)


def test_a_page_shows_the_title_instead_of_its_line_of_code():
    made = fold_cells({"cells": [code("x = 1"), code(PROOF, "proof")]})
    opened, folded = made["cells"]
    assert opened["metadata"] == {"tags": []}
    assert folded["source"] == "assert x == 1"
    about = folded["metadata"]
    assert about["mystnb"]["code_prompt_show"] == "✓ Checked: x is 1"
    assert "hide-input" in about["tags"]


def test_a_folded_cell_becomes_a_native_element_with_its_title_as_name():
    translator = SimpleNamespace(body=[])
    node = {"prompt_show": "✓ Checked: x < 1", "classes": ["above-input"]}
    open_folded(translator, node)
    close_folded(translator, node)
    assert "".join(translator.body) == (
        '<details class="folded"><summary>✓ Checked: x &lt; 1</summary>\n</details>\n'
    )


@pytest.mark.parametrize(
    ("source", "bound", "read"),
    [
        ("y = x", {"y"}, {"x"}),
        ("x = x + 1", {"x"}, {"x"}),
        ("x += 1", {"x"}, {"x"}),
        ("y = [a for a in b]", {"y"}, {"b"}),
        ("for a in b:\n    c = a", {"a", "c"}, {"b"}),
        ("def f(a):\n    c = a\n    return c + d", {"f"}, {"d"}),
        ("f = lambda a: a + b", {"f"}, {"b"}),
        ("import a.b as c, d.e", {"c", "d"}, set()),
        ("with a as b:\n    b.c = 1", {"b"}, {"a"}),
        ("class A(B):\n    c = d", {"A"}, {"B", "d"}),
        ("%pip install x\na = 1", {"a"}, set()),
        ("print((y := 1), y)", {"y"}, {"print"}),
        ("def f():\n    return g()\n\n\ndef g():\n    pass", {"f", "g"}, {"g"}),
    ],
)
def test_names_that_a_cell_binds_and_reads_are_found(source, bound, read):
    assert find_names(source) == (bound, read)


def test_a_name_that_is_bound_again_is_not_needed():
    assert find_needed_later(["x = 1", "x = 2", "print(x)"]) == [
        set(),
        {"x"},
        set(),
    ]
