"""The page of names: whatever a module calls an axis stands on it."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "chapters/notation.md").read_text("utf8")
MODULES = sorted((ROOT / "lib").rglob("*.py"))
AXES = re.compile(r"^Axes: (.*?)(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)


def section(name):
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def first_column(name):
    rows = [x for x in section(name).splitlines() if x.startswith("| ")]
    return {part for row in rows for part in row.split("|")[1].split(", ")}


def letters(path):
    text = ast.get_docstring(ast.parse(path.read_text("utf8"))) or ""
    found = AXES.search(text)
    return set(re.findall(r"\b[A-Z][qk]?\b", found[1])) if found else set()


def known_axes():
    return {x.strip() for x in first_column("Axes")} | {"K"}


def test_modules_name_axes():
    assert {"B", "H", "T", "S", "D"} <= set().union(*map(letters, MODULES))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_every_axis_of_a_module_is_on_the_page(path):
    assert letters(path) <= known_axes()


def test_every_axis_on_the_page_is_one_of_a_module():
    used = set().union(*map(letters, MODULES))
    assert known_axes() - {"axis", "---"} - used == set()


def test_the_arguments_of_attend_are_on_the_page():
    names = section("Tensors")
    for name in ("query", "key", "value", "mask", "bias", "scale", "weights"):
        assert f"`{name}`" in names
