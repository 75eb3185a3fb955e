"""Solutions as chapters show them: folded, and copied from the tested source.

A chapter holds, after each exercise, a block that begins
`<summary>Solution of <code>check_x</code></summary>`. It is plain HTML and
Markdown, which pages, Colab and Jupyter all fold. A solution begins with the
imports that the chapter's cells above it lack, so that it can be pasted there.
`make pages` fills every such block anew; a test holds them fresh.
"""

import ast
import builtins
import dis
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from types import CodeType

from attnbook.exercises.declare import Exercise

BLOCK = re.compile(
    r"<details>\n<summary>Solution of <code>(check_\w+)</code></summary>\n"
    r".*?</details>",
    re.DOTALL,
)
MODULE = re.compile(r"from (attnbook\.exercises\.\w+) import \(?\s*check_")
CELL = re.compile(
    r"^```\{code-cell\} ipython3\n(?::tags:[^\n]*\n)?(.*?)^```$", re.M | re.S
)


def find_exercises(text: str) -> dict[str, Exercise]:
    modules = [importlib.import_module(name) for name in MODULE.findall(text)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Exercise)
    }


def list_imports(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield each name that code imports, its module and its name there.

    The last is "" if the name is a module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                yield one.asname or one.name, node.module or "", one.name
        elif isinstance(node, ast.Import):
            for one in node.names:
                yield one.asname or one.name.split(".")[0], one.name, ""


def list_global_names(code: CodeType) -> set[str]:
    names = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= list_global_names(inner)
    return names


def rank_module(name: str) -> tuple[int, str]:
    """Return a module's place among imports: Python's own, others, ours."""
    top = name.split(".")[0]
    ours = 2 * (top == "attnbook")
    return (0 if top in sys.stdlib_module_names else 1 + ours, name)


def write_imports(shown: tuple[Callable, ...], present: Collection[str]) -> str:
    """Return the imports that functions need, except names that are present."""
    known = {*present, *dir(builtins), *(f.__name__ for f in shown)}
    wanted: dict[str, set[str]] = {}
    for function in shown:
        source = textwrap.dedent(inspect.getsource(function))
        code = compile(source, "solution", "exec")
        module = inspect.getmodule(function)
        origins = {
            name: origin for name, *origin in list_imports(inspect.getsource(module))
        }
        needed = (list_global_names(code) & vars(module).keys()) - known
        for name in needed:
            home, there = origins.get(name, (module.__name__, name))
            renamed = f" as {name}"
            if there:
                entry = there if there == name else there + renamed
                wanted.setdefault(home, set()).add(entry)
            else:
                plain = home if home.split(".")[0] == name else home + renamed
                wanted.setdefault("", set()).add(plain)
    lines = [f"import {name}" for name in sorted(wanted.pop("", ()))]
    for home in sorted(wanted, key=rank_module):
        lines.append(f"from {home} import {', '.join(sorted(wanted[home]))}")
    return "\n".join(lines)


def write_solution(name: str, exercise: Exercise, present: Collection[str] = ()) -> str:
    shown = (*exercise.helpers, exercise.solution)
    parts = [inspect.getsource(f).rstrip() for f in shown]
    if imports := write_imports(shown, present):
        parts.insert(0, imports)
    source = "\n\n\n".join(parts)
    return (
        f"<details>\n<summary>Solution of <code>{name}</code></summary>\n\n"
        f"```python\n{source}\n```\n\n</details>"
    )


def refresh_solutions(text: str) -> str:
    known = find_exercises(text)

    def fresh(found: re.Match) -> str:
        name = found.group(1)
        if name not in known:
            raise ValueError(
                f"a solution of {name} is folded in, but the chapter imports "
                f"only {', '.join(sorted(known)) or 'no check'}"
            )
        cells = CELL.findall(text[: found.start()])
        present = {name for cell in cells for name, *_ in list_imports(cell)}
        return write_solution(name, known[name], present)

    return BLOCK.sub(fresh, text)
