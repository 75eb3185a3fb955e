"""Executes a notebook's code cells with plain Python: no Jupyter, no IPython.

`python -m workshop.bench.notebook_cells chapters/10_cost.ipynb --out 10.jsonl`
runs the cells in one namespace and writes a line for each. A cell that fails
is reported with its number and does not stop the others. Widget cells, and
cells that need what a widget cell makes, are named and left out; syntax that
only IPython knows is refused.
"""

import argparse
import ast
import contextlib
import gc
import importlib
import json
import linecache
import os
import re
import symtable
import sys
import time
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

WIDGETS = ("attnbook.widgets", "anywidget", "ipywidgets")
IPYTHON = re.compile(r"^\s*(?:[%!?]|\w+ = [%!])|\?\s*$")
LONGEST = 2000


def read_code_cells(notebook: Path) -> list[tuple[int, str]]:
    """Return the place in the notebook and the source of each code cell."""
    book = json.loads(notebook.read_text("utf8"))
    return [
        (place, "".join(cell["source"]))
        for place, cell in enumerate(book["cells"])
        if cell["cell_type"] == "code"
    ]


def find_ipython_line(source: str) -> str | None:
    """Return the first line that only IPython understands, if there is one."""
    try:
        ast.parse(source)
    except SyntaxError:
        return next(filter(IPYTHON.search, source.splitlines()), None)
    return None


def is_widget(source: str) -> bool:
    """Tell whether a cell imports a widget."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module]
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return any(
        name == widget or name.startswith(f"{widget}.")
        for name in names
        for widget in WIDGETS
    )


def find_names(source: str) -> tuple[set[str], set[str]]:
    """Return the global names that a cell makes, and those that it needs."""
    top = symtable.symtable(source, "cell", "exec")
    made = {
        x.get_name() for x in top.get_symbols() if x.is_assigned() or x.is_imported()
    }
    used = {x.get_name() for x in top.get_symbols() if x.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {x.get_name() for x in table.get_symbols() if x.is_global()}
    return made, used - made


def provide_ipython_display() -> None:
    """Provide `IPython.display` where IPython cannot be imported."""
    with contextlib.suppress(ImportError):
        importlib.import_module("IPython.display")
        return

    class Shown(str):
        def __new__(cls, data="", **more):
            return super().__new__(cls, data)

    def display(*things, **more):
        print(*things)

    # Not its parent: matplotlib asks `sys.modules` whether IPython is there.
    module = types.ModuleType("IPython.display")
    for name in ("HTML", "Latex", "Markdown", "Math", "SVG"):
        setattr(module, name, type(name, (Shown,), {}))
    vars(module)["display"] = display
    sys.modules[module.__name__] = module


def execute(source: str, name: str, namespace: dict) -> None:
    """Run a cell, and print the value of its last line as a notebook does."""
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = len(source), None, lines, name
    tree = ast.parse(source, name)
    last = None
    end = tree.body[-1] if tree.body else None
    if isinstance(end, ast.Expr):
        tree.body.pop()
        last = ast.Expression(end.value)
    exec(compile(tree, name, "exec"), namespace)
    if last is not None:
        value = eval(compile(last, name, "eval"), namespace)
        if value is not None:
            print(repr(value)[:LONGEST])


def format_error(error: BaseException, name: str) -> str:
    """Return an error in one line, with the cell's line that raised it."""
    places = traceback.extract_tb(error.__traceback__)
    line = next((p.lineno for p in reversed(places) if p.filename == name), 0)
    message = str(error).strip().partition("\n")[0][:300]
    return f"line {line}: {type(error).__name__}: {message}"


def run_cell(source: str, name: str, namespace: dict, missing: set) -> dict:
    """Run one cell; return what became of it.

    Args:
        source: of the cell.
        name: of the cell, as a traceback shows it.
        namespace: of all cells.
        missing: names that a left-out cell would have made; changed in place.
    """
    odd = find_ipython_line(source)
    if odd:
        return {
            "outcome": "refused",
            "error": f"only IPython understands {odd.strip()!r}",
        }
    try:
        made, needed = find_names(source)
        widget = is_widget(source)
    except SyntaxError as error:
        return {"outcome": "failed", "error": format_error(error, name)}
    lacking = sorted(missing & needed)
    if widget or lacking:
        missing |= made
        needs = f"needs {', '.join(lacking)}" if lacking else "a widget"
        return {"outcome": "left out", "error": needs}
    try:
        execute(source, name, namespace)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        print(f"{name}: {format_error(error, name)}", file=sys.stderr)
        full = "OutOfMemoryError" in type(error).__name__
        kind = "out of memory" if full else "failed"
        return {"outcome": kind, "error": format_error(error, name)}
    missing -= made
    return {"outcome": "ran"}


def run_notebook(notebook: Path) -> Iterator[dict]:
    """Yield a record before and after each code cell of a notebook."""
    provide_ipython_display()
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    missing: set[str] = set()
    for place, source in read_code_cells(notebook):
        yield {"cell": place, "outcome": "begun"}
        begun = time.monotonic()
        found = run_cell(
            source, f"<{notebook.stem}, cell {place}>", vars(module), missing
        )
        if found["outcome"] == "out of memory":
            release_gpu_memory()
        took = round(time.monotonic() - begun, 2)
        yield {"cell": place, **found, "seconds": took}


def release_gpu_memory() -> None:
    """Give back the GPU's memory that nothing refers to."""
    gc.collect()
    sys.modules["torch"].cuda.empty_cache()


def main(words: list[str] | None = None) -> int:
    """Execute a notebook; append a line a cell to a file, the last one "end".

    Returns:
        0 if every cell ran or was left out, 1 if one failed, 3 if stopped.
    """
    parser = argparse.ArgumentParser(prog="python -m workshop.bench.notebook_cells")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--setting", default="", help="told in the first line")
    options = parser.parse_args(words)
    if not options.notebook.is_file():
        print(f"there is no notebook {options.notebook}", file=sys.stderr)
        return 2
    os.environ.setdefault("MPLBACKEND", "Agg")
    notebook, failed = options.notebook.resolve(), False
    with options.out.resolve().open("a", encoding="utf8") as file:

        def note(record: dict) -> None:
            file.write(json.dumps(record) + "\n")
            file.flush()

        os.chdir(notebook.parent)
        note({"setting": options.setting, "outcome": "start"})
        try:
            for record in run_notebook(notebook):
                failed |= record["outcome"] in BAD
                note(record)
        except KeyboardInterrupt:
            note({"outcome": "stopped"})
            return 3
        note({"outcome": "end"})
    return int(failed)


BAD = ("failed", "refused", "out of memory")


if __name__ == "__main__":
    sys.exit(main())
