"""Runs a notebook's code cells in plain Python: no Jupyter, no IPython.

`python -m workshop.bench.cells chapters/10_cost.ipynb FILE` writes what became
of each cell. Cells that import what a bare machine lacks, as widgets do, are left
out, and so are those that need their names.
"""

import ast
import json
import linecache
import os
import re
import sys
import types
from importlib.util import find_spec
from pathlib import Path

from workshop.bench.record import write_json


def execute(source: str, name: str, namespace: dict) -> None:
    """Run a cell, and print the value of its last line as a notebook does."""
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    tree = ast.parse(source, name)
    ends = tree.body and isinstance(tree.body[-1], ast.Expr)  # not with comments alone
    last = tree.body.pop() if ends else None
    exec(compile(tree, name, "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None:
            print(repr(value))


def run_cells(notebook: Path) -> list[dict]:
    """Run all code cells in one namespace; return what became of each."""
    if find_spec("IPython") is None:
        shown = types.ModuleType("IPython.display")
        vars(shown)["display"] = lambda *things, **options: print(*things)
        sys.modules[shown.__name__] = shown
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    found: list[dict] = []
    lost: set[str] = set()
    for place, cell in enumerate(json.loads(notebook.read_text("utf8"))["cells"]):
        if cell["cell_type"] == "code":
            outcome, error = "ran", ""
            source, name = "".join(cell["source"]), f"<{notebook.stem}, cell {place}>"
            try:
                execute(source, name, vars(module))
            except Exception as reason:
                outcome, error = "failed", f"{type(reason).__name__}: {reason}"
                if isinstance(reason, ModuleNotFoundError) or (
                    isinstance(reason, NameError) and reason.name in lost
                ):
                    outcome = "left out"
                    lost |= {*re.findall(r"\w+", source)}
            found.append({"cell": place, "outcome": outcome, "error": error})
    return found


if __name__ == "__main__":
    notebook, out = (Path(word).resolve() for word in sys.argv[1:])
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.chdir(notebook.parent)
    write_json(out, run_cells(notebook))
