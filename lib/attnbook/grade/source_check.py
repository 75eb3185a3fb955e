"""A search for a ready-made attention in the source of an attempt.

A student's code could disable the guard inside its process, but not this
search, which only reads the source. It follows names through the notebook from
the argument of a check and finds functions that are called by name. Where a
check is not called directly, as in a loop over checks, it starts from every
function of the notebook that the cell names.
"""

import ast
from collections.abc import Iterable, Mapping

from attnbook.exercises.guard import ATTENTION
from attnbook.grade.submission import Prepared

MODULES = {"MultiheadAttention", "TransformerEncoderLayer", "Transformer"}
HIDDEN = ("attnbook.exercises", "attnbook.grade")
CODE = ast.FunctionDef, ast.ClassDef, ast.Lambda
Names = dict[str, list[ast.AST]]


def collect_names(trees: Iterable[ast.AST]) -> tuple[Names, dict[str, str]]:
    """Return a notebook's definitions and its imported names."""
    defined: Names = {}
    imported: dict[str, str] = {}
    for node in (n for tree in trees for n in ast.walk(tree)):
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
    # What is defined and imported under one name is left to the guard.
    return defined, {k: v for k, v in imported.items() if k not in defined}


def find_reachable(asked: Iterable[ast.AST], defined: Names) -> list[ast.AST]:
    """Return the code that expressions may run, as far as defined here."""
    todo: list[ast.AST] = [*asked]
    seen, found = set(), []
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


def is_hidden(full: str) -> bool:
    """Tell whether a name is of a solution or the grader, not of a check."""
    parts = full.split(".")
    named = any(x.startswith("check_") for x in parts)
    return full.startswith(HIDDEN) and len(parts) > 3 and not named


def find_ready_made(
    found: list[ast.AST],
    imported: dict[str, str],
    forbidden: frozenset[str],
    solution: str,
) -> str | None:
    """Return the ready-made function that an attempt names, if any.

    Args:
        found: the code that the attempt may run.
        imported: the notebook's imported names, in full.
        forbidden: the functions that the exercise forbids.
        solution: the name of the book's own function.
    """
    refused = (forbidden & ATTENTION) | MODULES
    for node in (n for x in found for n in ast.walk(x)):
        text = node.value if isinstance(node, ast.Constant) else None
        full = find_full_name(node, imported)
        last = full.rpartition(".")[2] or text
        if isinstance(last, str) and last.strip("_") in refused:
            return last
        if is_hidden(full):
            return full
        if full.startswith("attnbook.") and last == solution:
            return full
    return None


def search(
    done: Prepared, checks: Mapping[str, tuple[frozenset[str], str]]
) -> dict[int, dict[str, str | None]]:
    """Return what ready-made function each cell's attempts name.

    Args:
        done: the notebook.
        checks: what each check forbids, and the name of its solution.
    """
    defined, imported = collect_names(done.trees.values())
    result: dict[int, dict[str, str | None]] = {}
    for number, named in done.arguments.items():
        for key in named.keys() & checks.keys():
            tree = done.trees[number]
            asked: list = named[key] or find_own_code(tree, defined)
            found = find_reachable(asked, defined)
            result.setdefault(number, {})[key] = find_ready_made(
                found, imported, *checks[key]
            )
    return result


def find_own_code(tree: ast.Module, defined: Names) -> list[ast.AST]:
    """Return the notebook's functions that a cell defines or names."""
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    known = [x for name in sorted(names) for x in defined.get(name, [])]
    kinds = (*CODE, ast.Name, ast.Attribute)
    lambdas = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]
    return [*(x for x in known if isinstance(x, kinds)), *lambdas]
