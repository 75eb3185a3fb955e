"""Declarations that lack a part stop the build, with file and line.

Mistakes, experiments and widgets are declared where they are defined. Their
source is parsed, not imported, because the pages are built without PyTorch.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

PARTS = ("slug", "title", "sentence", "wrong answer")


def parse_modules(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module of a folder with its syntax tree."""
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text("utf8"))


def find_called_name(node: ast.AST) -> str:
    """Return the name of the function that a call or a decorator calls."""
    function = node.func if isinstance(node, ast.Call) else node
    return getattr(function, "id", getattr(function, "attr", ""))


def find_incomplete_mistakes(exercises: Path) -> Iterator[str]:
    """Yield a sentence for each mistake that lacks a part."""
    for path, tree in parse_modules(exercises):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and find_called_name(node) == "Mistake":
                given = len(node.args) + len(node.keywords)
                if given < len(PARTS) and not unpacks_arguments(node):
                    name = ast.unparse(node.args[0]) if node.args else "?"
                    yield (
                        f"{path}:{node.lineno}: the mistake {name} has {given} "
                        f"of its parts {', '.join(PARTS)}"
                    )


def unpacks_arguments(node: ast.Call) -> bool:
    """Tell whether a call unpacks its arguments: they cannot be counted."""
    return any(isinstance(x, ast.Starred) for x in node.args)


def find_experiments_without_record(experiments: Path, records: Path) -> Iterator[str]:
    """Yield a sentence for each registered experiment without a record."""
    for path, tree in parse_modules(experiments):
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and any(
                find_called_name(x) == "experiment" for x in node.decorator_list
            ):
                record = records / f"{node.name}.json"
                if not record.exists():
                    yield (
                        f"{path}:{node.lineno}: the experiment {node.name!r} "
                        f"has no record {record}; type make evidence "
                        f"NAME={node.name}"
                    )


def find_widgets_without_fallback(widgets: Path) -> Iterator[str]:
    """Yield a sentence for each widget class without a fallback of its own."""
    for path, tree in parse_modules(widgets):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and any(
                find_called_name(base) == "BookWidget" for base in node.bases
            ):
                methods = {getattr(x, "name", "") for x in node.body}
                if "fallback" not in methods:
                    yield (
                        f"{path}:{node.lineno}: the widget {node.name!r} has "
                        "no method fallback, so readers without JavaScript "
                        "would see nothing"
                    )


def find_incomplete(library: Path) -> list[str]:
    """Return a sentence for each declaration under `lib/` that lacks a part."""
    book, workshop = library / "attnbook", library / "workshop"
    return [
        *find_incomplete_mistakes(book / "exercises"),
        *find_experiments_without_record(
            workshop / "experiments", book / "records" / "json"
        ),
        *find_widgets_without_fallback(book / "widgets"),
    ]


def require_complete(app) -> None:
    """Stop the build if a declaration lacks a part.

    Raises:
        ExtensionError: naming each file, line and missing part.
    """
    from sphinx.errors import ExtensionError

    found = find_incomplete(Path(app.srcdir) / "lib")
    if found:
        raise ExtensionError("\n".join(found))


def setup(app) -> None:
    """Connect to Sphinx: declarations are checked before anything is read."""
    app.connect("builder-inited", require_complete)
