"""Which test uses which file: the import graph, read from the sources.

Nothing is imported. A file uses what it imports, the modules that its strings
name (as in a command for another process), every module that an f-string with
a dot could name, and the data files whose names stand in its strings. A test
uses what its own statements use, and so on through the names of its file.
"""

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# Folders from which absolute imports start.
ROOTS = ("tests/helpers", "lib", "tests")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
CHAPTER = re.compile(r"chapters/\d\d_\w+\.md")
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.M | re.S)
COMMAND = re.compile(r"^(\s*)(?:[%!]|:\w+:).*", re.M)  # and a cell's options
WORD = re.compile(r"[\w.-]+")
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Statement:
    """One top-level statement.

    Attributes:
        node: its syntax tree.
        binds: the names that it gives a value.
        loads: the names that it reads; arguments of functions among them,
            because pytest finds fixtures by the names of arguments.
    """

    node: ast.stmt
    binds: frozenset[str]
    loads: frozenset[str]

    def concerns_all(self) -> bool:
        """Tell whether it concerns every test of its file."""
        marks = getattr(self.node, "decorator_list", ())
        automatic = any("autouse=True" in ast.unparse(x) for x in marks)
        return automatic or not self.binds or "pytestmark" in self.binds


def read_statement(node: ast.stmt) -> Statement:
    """Return a top-level statement with the names it binds and loads."""
    binds, loads = set(), set()
    if isinstance(node, Function):
        binds.add(node.name)
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            bound = isinstance(part.ctx, ast.Store)
            outside = bound and not isinstance(node, Function)
            (binds if outside else loads).add(part.id)
        elif isinstance(part, ast.arg):
            loads.add(part.arg)
        elif isinstance(part, ast.alias) and not isinstance(node, Function):
            binds.add((part.asname or part.name).partition(".")[0])
    return Statement(node, frozenset(binds), frozenset(loads))


def get_module_name(file: str) -> str | None:
    """Return the dotted name under which a file is imported, or None."""
    path = Path(file)
    root = next((x for x in ROOTS if file.startswith(f"{x}/")), None)
    if path.suffix != ".py" or root is None:
        return None
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or None


class Dependencies:
    """The files of a repository and what they use.

    Args:
        root: the repository.
        files: its files, relative to the root.
    """

    def __init__(self, root: Path, files: Iterable[str]):
        self.root, self.files = root, sorted(set(files))
        named = ((get_module_name(file), file) for file in self.files)
        self.modules = {name: file for name, file in named if name}
        self.cached: dict[int, frozenset[str]] = {}

    @cached_property
    def statements(self) -> dict[str, list[Statement]]:
        """The top-level statements of each module and each chapter's cells."""
        found = {}
        for file in self.files:
            path = self.root / file
            if not path.exists():
                continue
            if file in self.modules.values():
                source = path.read_text("utf8")
            elif CHAPTER.fullmatch(file):
                cells = CELL.findall(path.read_text("utf8"))
                source = COMMAND.sub(r"\1pass", "\n".join(cells))
            else:
                continue
            found[file] = [read_statement(x) for x in ast.parse(source).body]
        return found

    @cached_property
    def used_files(self) -> dict[str, frozenset[str]]:
        """The files that each file uses itself."""
        return {
            file: frozenset(self.find_used(made)) - {file}
            for file, made in self.statements.items()
        }

    def find_used(self, made: Iterable[Statement]) -> Iterator[str]:
        """Yield the files that some statements use themselves."""
        for one in made:
            if id(one) not in self.cached:
                self.cached[id(one)] = frozenset(self.find_uses(one))
            yield from self.cached[id(one)]

    def find_uses(self, one: Statement) -> Iterator[str]:
        """Yield the files that one statement uses itself."""
        for node in ast.walk(one.node):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self.find_named(alias.name)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    yield from self.resolve_import(node.module, alias.name)
            elif isinstance(node, ast.JoinedStr):
                yield from self.match_pattern(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from self.find_named(node.value)

    def resolve_import(self, module: str, name: str) -> Iterator[str]:
        """Yield where an imported name comes from, through packages."""
        whole = self.modules.get(f"{module}.{name}")
        found = whole or self.modules.get(module)
        if found is None:
            return
        yield found
        if found.endswith("__init__.py") and not whole:
            for made in self.statements.get(found, ()):
                node = made.node
                if (
                    name in made.binds
                    and isinstance(node, ast.ImportFrom)
                    and not node.level
                    and node.module != module
                ):
                    yield from self.resolve_import(node.module, name)

    def find_named(self, text: str) -> Iterator[str]:
        """Yield the modules and data files that a text names.

        A file's whole path names that file alone; a word of a text, every file
        and folder of that name.
        """
        for name in {text, *DOTTED.findall(text)}:
            if name in self.modules:
                yield self.modules[name]
        if "/" in text and text in self.files:
            yield text
            return
        for word in WORD.findall(text):
            yield from self.data_files.get(word, ())

    @cached_property
    def data_files(self) -> dict[str, list[str]]:
        """Data files by name and stem; those of the chapters by folder, too."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            path = Path(file)
            if path.suffix in (".py", ".ipynb") or len(path.parts) < 2:
                continue
            words = {path.name, path.stem}
            for word in words | ({"chapters"} & {path.parts[0]}):
                found.setdefault(word, []).append(file)
        return found

    def match_pattern(self, node: ast.JoinedStr) -> Iterator[str]:
        """Yield every module whose name an f-string could make."""
        pattern = "".join(
            re.escape(str(x.value)) if isinstance(x, ast.Constant) else r"\w+"
            for x in node.values
        )
        if re.fullmatch(r"(?:\w|\\[w.]\+?)*\\\.(?:\w|\\[w.]\+?)*", pattern):
            for name, file in self.modules.items():
                if re.fullmatch(pattern, name):
                    yield file

    def measure_distances(self, changed: str) -> dict[str, int]:
        """Return in how many steps each module comes to use a changed file.

        What reads a chapter does not use the modules that its cells import.
        """
        users: dict[str, set[str]] = {}
        for file, used in self.used_files.items():
            for other in used:
                users.setdefault(other, set()).add(file)
        found, queue = {changed: 0}, deque([changed])
        while queue:
            file = queue.popleft()
            for user in users.get(file, set()) - found.keys():
                if CHAPTER.fullmatch(user):
                    continue
                found[user] = found[file] + 1
                queue.append(user)
        return found

    def list_tests(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield each test, as `file::name`, with the files it uses itself."""
        for file, made in self.statements.items():
            if not Path(file).name.startswith("test_"):
                continue
            always = [s for s in made if s.concerns_all()]
            for one in made:
                name = getattr(one.node, "name", "")
                if name.startswith("test_"):
                    needed = find_closure([one, *always], made)
                    yield f"{file}::{name}", frozenset(self.find_used(needed))


def find_closure(start: list[Statement], made: list[Statement]) -> list[Statement]:
    """Return statements with those whose names they use, and so on."""
    found, queue = [], list(start)
    while queue:
        one = queue.pop()
        if any(one is x for x in found):
            continue
        found.append(one)
        queue += [s for s in made if s.binds & one.loads]
    return found
