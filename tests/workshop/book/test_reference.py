"""Reference pages list what the code has."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from attnbook.attention import scaled_dot_product
from workshop.book import reference

pytestmark = pytest.mark.exact("reads sources and pages, and compares texts")

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "lib/attnbook"
PACKAGES = [path.name for path in reference.list_packages(LIBRARY)]
WORKSHOP = ROOT / "lib/workshop"


@cache
def write_page(name):
    return reference.write_reference(LIBRARY / name, LIBRARY)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_stored_page_is_fresh(name):
    stored = ROOT / f"chapters/reference/{name}.md"
    assert stored.read_text("utf8") == write_page(name), "type make pages"


@pytest.mark.parametrize(
    "folder", reference.list_packages(WORKSHOP), ids=lambda path: path.name
)
def test_the_readme_of_each_workshop_package_is_fresh(folder):
    stored = (folder / "README.md").read_text("utf8")
    assert stored == reference.write_reference(folder, WORKSHOP), "make pages"
    first = next(
        node
        for path in sorted(folder.rglob("[a-z]*.py"))
        for node in reference.list_definitions(ast.parse(path.read_text("utf8")))
    )
    assert f"### {first.name}\n" in stored
    assert "chapter](" not in stored


def test_every_public_function_is_listed_with_its_first_paragraph():
    page = write_page("attention")
    for name, function in inspect.getmembers(scaled_dot_product, inspect.isfunction):
        home = inspect.getmodule(inspect.unwrap(function))
        if home is scaled_dot_product and not name.startswith("_"):
            about = inspect.getdoc(function).partition("\n\n")[0]
            assert f"### {name}\n" in page
            assert " ".join(about.split()) in page


def test_a_named_shape_is_written_out():
    page = write_page("models")
    assert "mix(\n    query: Float[Tensor, 'B H T D'],\n" in page
    assert "Heads" not in page


@pytest.mark.parametrize("name", PACKAGES)
def test_only_chapters_that_exist_are_linked(name):
    for linked in re.findall(r"\]\(\.\./(\w+)\.ipynb\)", write_page(name)):
        assert (ROOT / f"chapters/{linked}.md").exists()


def test_signatures_have_shapes_and_modules_their_chapter():
    page = write_page("attention")
    block = re.search(r"### attend\n\n```python\n(.*?)```", page, re.S)[1]
    assert "query: Float[Tensor, '*#B T D']" in block
    assert "mask: " in block
    section = page.partition("## attnbook.attention.scaled_dot_product\n")[2]
    assert "[chapter 4](../04_scaled_dot_product.ipynb)" in section[:400]


def test_every_exercise_is_listed():
    assert write_page("exercises").count("(attempt) -> Verdict") >= 50


def package(tmp_path, source):
    folder = tmp_path / "attnbook" / "attention"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Attention."""\n')
    (folder / "scaled_dot_product.py").write_text(source)
    return folder


def test_classes_are_listed_with_constructor_and_methods(tmp_path):
    folder = package(
        tmp_path,
        '"""A module."""\n\n'
        "class Layer(Module):\n"
        '    """A layer.\n\n    More."""\n\n'
        "    def __init__(self, width: int, *, heads: int = 1): ...\n"
        "    def forward(self, x: Float[Tensor, 'T C']) -> Tensor: ...\n"
        "    def _inner(self): ...\n\n"
        "def _hidden(): ...\n",
    )
    page = reference.write_reference(folder, tmp_path / "attnbook")
    assert "Layer(width: int, *, heads: int = 1)\n" in page
    assert "Layer.forward(x: Float[Tensor, 'T C']) -> Tensor\n" in page
    assert "A layer.\n" in page
    assert "More." not in page
    assert "hidden" not in page
    assert "inner" not in page


@pytest.mark.refusal
def test_a_function_without_docstring_is_refused_with_its_file(tmp_path):
    folder = package(tmp_path, '"""A module."""\n\ndef scale(x): ...\n')
    message = "scaled_dot_product.py: scale has no docstring"
    with pytest.raises(ValueError, match=message):
        reference.write_reference(folder, tmp_path / "attnbook")
