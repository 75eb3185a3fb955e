"""The packages of `attnbook` are layers: imports go one way only."""

import ast
import re
from pathlib import Path

import pytest

import attnbook

LIB = Path(__file__).parents[2] / "lib"
LAYERS = re.findall(r"(?m)^- `(\w+)`:", attnbook.__doc__)
MODULES = sorted((LIB / "attnbook").rglob("*.py"))


def imported(source):
    """Return the full names that a module's source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def wrong(layer, source):
    """Return the imports that a module of this layer must not have."""
    allowed = {"__version__", *LAYERS[: LAYERS.index(layer) + 1]}
    found = [name.split(".") for name in imported(source)]
    return sorted(
        ".".join(name)
        for name in found
        if name[0] == "workshop"
        or (name[0] == "attnbook" and not {*name[1:2]} <= allowed)
    )


def test_every_package_is_a_layer():
    folders = {p.parent.name for p in (LIB / "attnbook").glob("*/__init__.py")}
    assert sorted(folders) == sorted(LAYERS)
    assert not [p for p in (LIB / "attnbook").glob("[a-z]*.py")]


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if p.parent != LIB / "attnbook"],
    ids=lambda p: str(p.relative_to(LIB)),
)
def test_a_package_imports_no_higher_one(path):
    layer = path.relative_to(LIB / "attnbook").parts[0]
    assert wrong(layer, path.read_text("utf8")) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from attnbook.grade import command", "attnbook.grade.command"),
        ("def f():\n import attnbook.training.loop", "attnbook.training.loop"),
        (
            "from workshop.experiments import record",
            "workshop.experiments.record",
        ),
    ],
)
def test_an_import_of_a_higher_package_is_found(source, name):
    assert wrong("attention", source) == [name]


def test_an_import_of_a_lower_package_is_allowed():
    lower = "from attnbook.masks import rules\nimport attnbook.attention.tiled"
    assert wrong("attention", lower) == []
