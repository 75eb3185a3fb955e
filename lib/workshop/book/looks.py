"""Looks: methods and tables look alike in all chapters.

A method has one name and one style, which `attnbook.figures.get_style` returns,
and a table is shown by `attnbook.figures.show_table`. The code of a finished
chapter makes neither by hand. An open cell may print a few numbers below
one another; a cell that is folded may not.
"""

import ast
import re
from collections.abc import Iterator

from attnbook.figures import PALETTE
from attnbook.figures.methods import METHODS
from workshop.book.cell_names import parse

LOOK = {"label", "color", "linestyle", "marker"}
RULE = re.compile(r"\|\s*:?-{3,}:?\s*\|")
WIDTH = re.compile(r"[<>^=]?\d+")
LOOPS = (ast.For, ast.While)


def find_faults(source: str, folded: bool = True) -> list[str]:
    """Return a sentence for each look or table that a cell makes by hand."""
    finds = (find_look, find_table, *((find_rows,) if folded else ()))
    return [
        fault
        for node in ast.walk(parse(source))
        for find in finds
        if (fault := find(node))
    ]


def find_look(node: ast.AST) -> str | None:
    """Return what is wrong with a part of code that gives a method a look."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        changed = LOOK & {*read_keys(node.right)}
        if get_name(node.left) == "get_style" and changed:
            return f"changes the {sorted(changed)} that get_style returns"
    elif isinstance(node, ast.Subscript):
        if get_name(node.value) == "PALETTE" and isinstance(node.slice, ast.Subscript):
            return "looks a color up in a table of its own: use get_style"
    elif isinstance(node, ast.Dict):
        values = [getattr(x, "value", None) for x in node.values]
        if values and all(isinstance(x, str) and x in PALETTE for x in values):
            return "has a table of colors of its own: use get_style"
    elif isinstance(node, ast.Call):
        for word in node.keywords:
            name = str(getattr(word.value, "value", ""))
            if word.arg == "label" and name in METHODS:
                return f"labels a curve {name!r} by hand: use get_style"
    return None


def find_table(node: ast.AST) -> str | None:
    """Return what is wrong with a part of code that shows a table."""
    if isinstance(node, ast.Call) and get_name(node) == "Markdown":
        return "calls Markdown(): a table comes from show_table"
    text = getattr(node, "value", None)
    if isinstance(text, str) and RULE.search(text):
        return "joins a table by hand: use show_table"
    return None


def find_rows(node: ast.AST) -> str | None:
    """Return what is wrong with a loop that prints rows of columns."""
    if isinstance(node, LOOPS):
        for call in find_calls(node, "print"):
            if sum(map(is_padded, ast.walk(call))) > 1:
                return "prints rows of columns in a loop: use show_table"
    return None


def find_calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a function inside a part of code."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and get_name(inner) == name:
            yield inner


def get_name(node: ast.AST) -> str:
    """Return the name of what is called or read, or nothing."""
    if isinstance(node, ast.Call):
        node = node.func
    return getattr(node, "id", getattr(node, "attr", ""))


def read_keys(node: ast.AST) -> list[str]:
    """Return the words that are keys of a dictionary in the code."""
    if not isinstance(node, ast.Dict):
        return []
    return [x.value for x in node.keys if isinstance(x, ast.Constant)]


def is_padded(node: ast.AST) -> bool:
    """Tell whether a part of an f-string fills a column up to its width."""
    if not isinstance(node, ast.FormattedValue) or not node.format_spec:
        return False
    return bool(WIDTH.match(ast.unparse(node.format_spec).strip("f'\"")))
