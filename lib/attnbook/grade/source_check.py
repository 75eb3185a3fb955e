"""A search for a ready-made attention in the source of an attempt.

A student's code could disable the guard inside its process, but not this
search, which only reads the source. It follows names through the notebook from
the argument of a check and finds functions that are called by name.
"""

import ast
from collections.abc import Iterable

from attnbook.exercises.exercise import Exercise
from attnbook.exercises.guard import ATTENTION

MODULES = {"MultiheadAttention", "TransformerEncoderLayer", "Transformer"}
HIDDEN = ("attnbook.exercises", "attnbook.grade")
Names = dict[str, list[ast.AST]]


def collect_names(codes: Iterable[str]) -> tuple[Names, dict[str, str]]:
    """Return a notebook's definitions and its imported names."""
    defined: Names = {}
    imported: dict[str, str] = {}
    for node in (n for code in codes for n in ast.walk(ast.parse(code))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    defined.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.Import):
            for x in node.names:
                top = x.name if x.asname else x.name.partition(".")[0]
                imported[x.asname or top] = top
        elif isinstance(node, ast.ImportFrom):
            for x in node.names:
                imported[x.asname or x.name] = f"{node.module}.{x.name}"
    return defined, imported


def find_reachable(ask: ast.AST, defined: Names) -> list[ast.AST]:
    """Return the code that an expression may run, as far as defined here."""
    todo, seen, found = [ask], set(), []
    while todo:
        node = todo.pop()
        found.append(node)
        for name in (n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            if name not in seen:
                seen.add(name)
                todo += defined.get(name, [])
    return found


def find_full_name(node: ast.AST, imported: dict[str, str]) -> str:
    """Return the full name of `a.b.c`, or an empty string."""
    if isinstance(node, ast.Name):
        return imported.get(node.id, "")
    if isinstance(node, ast.Attribute):
        before = find_full_name(node.value, imported)
        return f"{before}.{node.attr}" if before else f"?.{node.attr}"
    return ""


def find_ready_made(
    ask: ast.AST, codes: Iterable[str], exercise: Exercise
) -> str | None:
    """Return the ready-made function that an attempt names, if any."""
    defined, imported = collect_names(codes)
    ours = exercise.solution.__name__
    # What is defined and imported under one name is left to the guard.
    imported = {k: v for k, v in imported.items() if k not in defined}
    forbidden = (exercise.forbidden & ATTENTION) | MODULES
    for node in (n for x in find_reachable(ask, defined) for n in ast.walk(x)):
        text = node.value if isinstance(node, ast.Constant) else None
        full = find_full_name(node, imported)
        last = full.rpartition(".")[2] or text
        if isinstance(last, str) and last.strip("_") in forbidden:
            return last
        if full.startswith(HIDDEN):
            return full
        if full.startswith("attnbook.") and last == ours:
            return full
    return None
