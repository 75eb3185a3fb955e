"""Which test modules compute with floating-point numbers.

A module does if it imports PyTorch or NumPy, or another module, of the tests or
of the library, that does. `conftest.py` marks its tests `numeric`, and
`make test-processors` repeats them under every instruction set. Where no
verdict depends on rounding, a module says so: `pytest.mark.exact(reason)`. Of
such a module, a test whose verdict does is marked `numeric` itself.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
while not (ROOT / "pyproject.toml").exists():
    ROOT = ROOT.parent
COMPUTING = {"torch", "numpy"}


# Matches an import in formatted code. Parsing only the imports takes a tenth of
# the time of parsing the whole module.
IMPORT = re.compile(
    r"^[ \t]*((?:from [\w.]+ )?import (?:\([^()]*\)|[^(\n]+))$", re.MULTILINE
)
UNREAD = re.compile(r'"""(?s:.*?)"""|[ \t]*#.*')


def parse_imports(source: str) -> Iterator[ast.stmt]:
    """Yield the import statements of a module."""
    for statement in IMPORT.findall(UNREAD.sub("", source)):
        yield from ast.parse(statement).body


@cache
def read_imports(path: Path) -> frozenset[str]:
    """Return the names that a module imports, inside of functions too."""
    found = set()
    for node in parse_imports(path.read_text("utf8")):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = [node.module] if node.module else []
            found |= {*package}
            found |= {".".join([*package, x.name]) for x in node.names}
    return frozenset(found)


def find_files(name: str, roots: tuple[Path, ...]) -> list[Path]:
    """Return the files that a module's name can mean under these folders."""
    stem = name.replace(".", "/")
    ends = (f"{stem}.py", f"{stem}/__init__.py")
    return [root / end for root in roots for end in ends if (root / end).exists()]


@cache
def computes(path: Path, roots: tuple[Path, ...]) -> bool:
    """Return whether a module, or one that it imports, computes.

    Args:
        path: the module's file.
        roots: the folders from which it imports; what is imported from
            elsewhere is not followed.
    """
    seen, todo = {path}, [path]
    while todo:
        names = read_imports(todo.pop())
        if {name.partition(".")[0] for name in names} & COMPUTING:
            return True
        new = {x for name in names for x in find_files(name, roots)} - seen
        seen |= new
        todo += new
    return False


@cache
def find_roots(paths: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the folders of this project from which Python imports."""
    ours = (Path(x).resolve() for x in paths if "site-packages" not in x)
    return tuple(x for x in ours if x.is_relative_to(ROOT) and x != ROOT)


def is_numeric(item) -> bool:
    """Return whether a collected test is to be marked `numeric`."""
    if item.get_closest_marker("numeric"):
        return True
    exact = item.get_closest_marker("exact")
    return exact is None and computes(item.path, find_roots(tuple(sys.path)))
