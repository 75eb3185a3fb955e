"""A submitted notebook: its cells of code, and the checks that they name.

IPython's own transformer turns a cell into Python; `MagicReplacer` then keeps
what the magics `%time`, `%timeit` and `%%capture` execute and leaves out every
other magic. A notebook is prepared in the process that will run it, because a
file that is written to harm the grader can make each of these steps long.
"""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from attnbook.exercises import limits

EXERCISES = "attnbook.exercises"
SECONDS = 2.0  # within which a cell must be prepared
TIMED, CAPTURED = ("time", "timeit"), "capture"
MAGICS = ("run_line_magic", "run_cell_magic", "system", "getoutput")
OPTIONS = re.compile(r"(?:\s*-\S+(?:\s+\d+)?(?=\s|$))*\s*")
NAME = re.compile(r"\bcheck_\w+")
IMPORTS = re.compile(rf"^\s*(?:from|import)\s+{EXERCISES}\.(\w+)", re.M)
CAPTURE = (
    "{} = __import__('IPython.utils.capture').utils.capture.CapturedIO(None, None)"
)


@dataclass
class Cell:
    """A cell of code as it will be run.

    Attributes:
        number: its position among the notebook's cells, from 1.
        code: its code as Python; empty if it cannot be run.
        error: why it is not run, or only in part, if so.
        names: the checks that it names, each as `chapter.check_x`, or only
            `check_x` where the cell is no Python.
        chapters: the chapters whose checks it imports.
    """

    number: int
    code: str = ""
    error: str | None = None
    names: list[str] = field(default_factory=list)
    chapters: list[str] = field(default_factory=list)


def read(raw: bytes) -> list[tuple[int, str]]:
    """Return a notebook's code cells with their positions.

    Raises:
        ValueError: if it is not a notebook.
    """
    try:
        cells = json.loads(raw.decode("utf8"))["cells"]
        return [
            (number, "".join(cell.get("source", "")))
            for number, cell in enumerate(cells, start=1)
            if cell.get("cell_type") == "code"
        ]
    except Exception as error:  # a file can hold anything
        raise ValueError("it is not a notebook") from error


def parse_cell(source: str) -> tuple[ast.Module, str, str | None]:
    """Return a cell as a tree and as Python, and which magic is left out."""
    from IPython.core.inputtransformer2 import TransformerManager

    code = TransformerManager().transform_cell(source)
    tree = ast.parse(code)
    if "get_ipython" not in code:
        return tree, code, None
    replacer = MagicReplacer()
    tree = ast.fix_missing_locations(replacer.visit(tree))
    return tree, ast.unparse(tree), replacer.left_out


class MagicReplacer(ast.NodeTransformer):
    """Replaces the calls of magics by what they execute."""

    def __init__(self):
        self.left_out: str | None = None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        """Replace a magic that is a statement by statements."""
        magic = read_magic(node.value)
        if not magic:
            return self.generic_visit(node)
        return self.expand(*magic) or ast.Pass()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a magic whose value is used by an expression."""
        if not (magic := read_magic(node)):
            return self.generic_visit(node)
        kind, name, line, _ = magic
        if kind == "run_line_magic" and name in TIMED:
            try:
                code = OPTIONS.sub("", line, count=1)
                return self.visit(ast.parse(code, mode="eval").body)
            except SyntaxError:
                pass
        empty = ast.List([], ast.Load())
        return empty if kind == "getoutput" else ast.Constant(None)

    def expand(self, kind: str, name: str, line: str, body: str) -> list[ast.stmt]:
        """Return the statements that a magic executes."""
        if kind == "run_line_magic" and name in TIMED:
            return self.prepare(OPTIONS.sub("", line, count=1))
        if kind != "run_cell_magic":
            return []
        if name in TIMED:
            return self.prepare(body)
        if name == CAPTURED:
            first = line.split()[:1]
            kept = first and first[0].isidentifier()
            made = ast.parse(CAPTURE.format(first[0])).body if kept else []
            return made + self.prepare(body)
        self.left_out = f"%%{name}"
        return []

    def prepare(self, source: str) -> list[ast.stmt]:
        """Return the statements of code that may hold magics itself."""
        tree, _, left_out = parse_cell(source)
        self.left_out = self.left_out or left_out
        return tree.body


def read_magic(node: ast.AST) -> tuple[str, str, str, str] | None:
    """Return the kind, name, line and body of a magic, if a node calls one."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(func=ast.Name(id="get_ipython")), attr=kind
            )
        ) if kind in MAGICS:
            words = [x.value for x in node.args if isinstance(x, ast.Constant)]
            name, line, body, *_ = *map(str, words), "", "", ""
            return kind, name, line, body
    return None


class CheckFinder:
    """Follows how a notebook imports checks, cell by cell, by their names."""

    def __init__(self):
        self.bound: dict[str, str] = {}
        self.stars: list[str] = []

    def add(self, tree: ast.Module) -> list[str]:
        """Note a cell's imports; return the chapters that they name."""
        found = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for x in node.names:
                    found.append(self.bind(x.name, x.asname))
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for x in node.names:
                    full = f"{node.module}.{x.name}"
                    found.append(self.bind(full, x.asname or x.name))
                    if x.name == "*" and found[-1]:
                        self.stars.append(found[-1])
        return [x for x in dict.fromkeys(found) if x]

    def bind(self, full: str, name: str | None) -> str:
        """Note what a name is bound to; return the chapter, if it is one."""
        if f"{full}.".startswith("attnbook."):
            self.bound[name or "attnbook"] = full if name else "attnbook"
        elif name:
            self.bound.pop(name, None)
        before, _, rest = full.partition(f"{EXERCISES}.")
        return "" if before or not rest else rest.partition(".")[0]

    def find_key(self, node: ast.AST) -> str | None:
        """Return the check that an expression names, as `chapter.check_x`."""
        full = self.find_full_name(node)
        if full.startswith(f"{EXERCISES}."):
            inner = full.removeprefix(f"{EXERCISES}.")
            chapter, last = inner.partition(".")[0], inner.rpartition(".")[2]
            if last.startswith("check_") and chapter != last:
                return f"{chapter}.{last}"
        return None

    def find_full_name(self, node: ast.AST) -> str:
        """Return the full name of `a.b.c`, or an empty string."""
        if isinstance(node, ast.Attribute):
            before = self.find_full_name(node.value)
            return f"{before}.{node.attr}" if before else ""
        if not isinstance(node, ast.Name):
            return ""
        if node.id not in self.bound and node.id.startswith("check_"):
            return f"{EXERCISES}.{self.stars[-1]}.{node.id}" * bool(self.stars)
        return self.bound.get(node.id, "")

    def find_arguments(self, tree: ast.Module) -> dict[str, list[ast.expr]]:
        """Return each check that is named, with the arguments of its calls."""
        found: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if key := self.find_key(node):
                found.setdefault(key, [])
            if isinstance(node, ast.Call) and (key := self.find_key(node.func)):
                named = [x.value for x in node.keywords if x.arg == "attempt"]
                found.setdefault(key, []).extend(node.args[:1] or named)
        return found


@dataclass
class Prepared:
    """A notebook's cells, and what its source says of every check.

    Attributes:
        cells: the cells, as the grader gets them.
        trees: the tree of each cell that is Python, by its number.
        arguments: for each of these, the arguments of each check.
    """

    cells: list[Cell] = field(default_factory=list)
    trees: dict[int, ast.Module] = field(default_factory=dict)
    arguments: dict[int, dict[str, list[ast.expr]]] = field(default_factory=dict)


def prepare(
    raw: bytes, stop: Callable = lambda: limits.limit_time(SECONDS)
) -> Prepared:
    """Return a notebook's cells, prepared to be run.

    Raises:
        ValueError: if it is not a notebook.
    """
    done, finder = Prepared(), CheckFinder()
    for number, source in read(raw):
        cell = Cell(number)
        done.cells.append(cell)
        try:
            with stop():
                tree, cell.code, left_out = parse_cell(source)
                cell.chapters = finder.add(tree)
                found = finder.find_arguments(tree)
        except limits.Stopped:
            cell.error = f"reading it takes more than {SECONDS:.0f} seconds"
        except Exception as error:  # a cell can hold anything
            first = str(error).partition("\n")[0][:200]
            cell.error = f"{type(error).__name__}: {first}"
        else:
            done.trees[number], done.arguments[number] = tree, found
            cell.names = list(found)
            if left_out:
                cell.error = f"{left_out} is not executed while grading"
                cell.names += find_names(source)
        if number not in done.trees:
            cell.code = ""
            cell.names = find_names(source)
            cell.chapters = list(dict.fromkeys(IMPORTS.findall(source)))
    return done


def find_names(source: str) -> list[str]:
    """Return every word of a text that is the name of a check."""
    return list(dict.fromkeys(NAME.findall(source)))
