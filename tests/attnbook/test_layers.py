"""The packages of `attnbook` and `workshop` are layers: imports go one way."""

import ast
import re
from pathlib import Path

import pytest

import attnbook
import workshop

LIB = Path(__file__).parents[2] / "lib"
LAYERS = {
    package.__name__: re.findall(r"(?m)^- `(\w+)`:", package.__doc__)
    for package in (attnbook, workshop)
}
FLAT = {"attnbook": [], "workshop": ["chapters", "progress"]}
MODULES = [
    path for package in LAYERS for path in sorted((LIB / package).glob("*/**/*.py"))
]


def imported(source):
    """Return the full names that a module's source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def wrong(package, layer, source):
    """Return the imports that a module of this layer must not have."""
    layers = LAYERS[package]
    own = layers[: layers.index(layer) + 1]
    allowed = {"attnbook": {"__version__", *LAYERS["attnbook"]}}
    allowed["workshop"] = set()
    allowed[package] = {"__version__", *FLAT[package], *own}
    found = [name.split(".") for name in imported(source)]
    return sorted(
        ".".join(name)
        for name in found
        if name[0] in LAYERS and not {*name[1:2]} <= allowed[name[0]]
    )


@pytest.mark.parametrize("package", LAYERS)
def test_every_package_is_a_layer(package):
    folders = {p.parent.name for p in (LIB / package).glob("*/__init__.py")}
    assert sorted(folders) == sorted(LAYERS[package])
    modules = (p.stem for p in (LIB / package).glob("[a-z]*.py"))
    assert FLAT[package] == sorted(modules)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(LIB)))
def test_a_package_imports_no_higher_one(path):
    package, layer = path.relative_to(LIB).parts[:2]
    assert wrong(package, layer, path.read_text("utf8")) == []


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
    assert wrong("attnbook", "attention", source) == [name]


def test_a_timing_imports_no_experiment():
    higher = "from workshop.experiments import record"
    assert wrong("workshop", "bench", higher) == ["workshop.experiments.record"]
    lower = "from workshop.derive import cmudict\nimport attnbook.grade.batch"
    assert wrong("workshop", "bench", lower) == []


def test_an_import_of_a_lower_package_is_allowed():
    lower = "from attnbook.masks import rules\nimport attnbook.attention.tiled"
    assert wrong("attnbook", "attention", lower) == []
