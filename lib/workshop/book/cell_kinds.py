"""Kinds of cells: what teaches stays open, proofs and plumbing are folded.

A cell tagged `proof` asserts. A cell tagged `plumbing` loads records, builds
figures or tables. Both begin with `# @title ...`: that line is what a page,
JupyterLab and Colab show of the folded cell. Like every other cell, both are
executed by nbval.

    ```{code-cell} ipython3
    :tags: [proof]

    # @title Checked: the weights of every query sum to 1
    assert torch.allclose(weights.sum(-1), torch.ones(3))
    ```
"""

import ast
import html
import json
import re
from pathlib import Path

from workshop.book.cell_names import find_needed_later, parse
from workshop.chapters import read_unfinished

# How Jupyter and Colab fold a cell's code.
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}
KINDS = ("setup", "proof", "plumbing")
TITLE = re.compile(r"\A# @title (\S.*)$\n?", re.M)
PROOF = re.compile(r"Checked: \S")
SET_UP = (ast.Import, ast.ImportFrom, ast.Assign, ast.AugAssign, ast.Pass)
BLOCKS = (ast.For, ast.With, ast.If)
SHOWING = {"print", "display", "show_figure", "show_diagram", "show_table"}


def find_kind(tags: list[str]) -> str:
    """Return the kind of a code cell: one of `KINDS`, or "open"."""
    return next((kind for kind in KINDS if kind in tags), "open")


def read_title(source: str) -> str | None:
    """Return the title in a cell's first line, if it has one."""
    found = TITLE.match(source)
    return found[1].strip() if found else None


def only_asserts(source: str) -> bool:
    """Tell whether a cell does nothing but assert, with a small set-up.

    Set-up are imports and assignments to plain names. A cell that binds what
    a later cell needs does more than that: see `binds_for_later`.
    """

    def allowed(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return all(is_plain_target(target) for target in node.targets)
        if isinstance(node, BLOCKS):
            return all(map(allowed, node.body))
        return isinstance(node, (ast.Assert, *SET_UP))

    body = parse(source).body
    return all(map(allowed, body)) and contains_assertion(body)


def binds_for_later(source: str, later: set[str]) -> bool:
    """Tell whether later cells need what a cell computes.

    What it only imports does not count: a later cell imports it again.

    Args:
        source: of the cell.
        later: names of the cell that later cells need.
    """
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return bool(later - imported)


def is_plain_target(target: ast.expr) -> bool:
    """Tell whether an assignment changes no object that was there before."""
    return not any(
        isinstance(x, (ast.Attribute, ast.Subscript)) for x in ast.walk(target)
    )


def contains_assertion(body: list[ast.stmt]) -> bool:
    """Tell whether statements contain an assertion."""
    return any(isinstance(x, ast.Assert) for y in body for x in ast.walk(y))


def find_display_call(source: str) -> str | None:
    """Return the name of a function that a cell calls to show something."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Call):
            called = node.func
            name = getattr(called, "id", getattr(called, "attr", ""))
            if name in SHOWING:
                return name
    return None


def find_faults(cells: list[dict], finished: bool = True) -> list[str]:
    """Return a sentence for every cell whose kind is wrong or unsaid.

    Args:
        cells: of a notebook, as JSON. Each has a source and metadata.
        finished: whether the chapter is. In one that is not, a cell that only
            asserts may stay open if later cells need its imports.
    """
    code = [
        (number, read_source(cell), cell["metadata"].get("tags", []), cell)
        for number, cell in enumerate(cells)
        if cell["cell_type"] == "code"
    ]
    later = find_needed_later([source for _, source, _, _ in code])
    return [
        f"cell {number} ({find_first_line(source)!r}) {fault}"
        for (number, source, tags, cell), names in zip(code, later, strict=True)
        if (fault := find_fault(source, find_kind(tags), names, cell, finished))
    ]


def find_fault(
    source: str, kind: str, later: set[str], cell: dict, finished: bool = True
) -> str | None:
    """Return what is wrong with one code cell, or None."""
    title = read_title(source)
    if kind == "open":
        excused = binds_for_later(source, later) if finished else later
        if only_asserts(source) and not excused:
            return (
                "only asserts but has no tag: add `:tags: [proof]` and a "
                "first line `# @title Checked: ...`"
            )
        return None
    if title is None:
        return f"is tagged {kind} but does not begin with `# @title ...`"
    if kind != "proof":
        if kind == "plumbing" and only_asserts(source) and not later:
            return "is tagged plumbing but only asserts: tag it proof"
        return None
    if not PROOF.match(title):
        return f"is a proof but its title {title!r} lacks `Checked: ` in front"
    if not contains_assertion(parse(source).body):
        return "is tagged proof but asserts nothing"
    if name := find_display_call(source):
        return f"is tagged proof but calls {name}(); a proof shows nothing"
    if cell.get("outputs"):
        return "is tagged proof but has an output; a proof shows nothing"
    if later:
        return (
            f"is tagged proof but later cells need its {sorted(later)}: what "
            "they need is bound in a cell of its own"
        )
    return None


def read_source(cell: dict) -> str:
    """Return a cell's source, which JSON may hold as a list of lines."""
    return "".join(cell["source"])


def find_first_line(source: str) -> str:
    """Return the first line that is not empty."""
    return next((x for x in source.splitlines() if x.strip()), "")


def fold_cells(notebook: dict, finished: bool = True) -> dict:
    """Return a notebook whose folded cells say their title on the page.

    Raises:
        ValueError: naming each cell whose kind is wrong or unsaid.
    """
    if faults := find_faults(notebook["cells"], finished):
        raise ValueError("; ".join(faults))
    for cell in notebook["cells"]:
        tags = cell["metadata"].setdefault("tags", [])
        if cell["cell_type"] != "code" or find_kind(tags) == "open":
            continue
        source = read_source(cell)
        title = read_title(source).replace("Checked: ", "✓ Checked: ", 1)
        if "hide-input" not in tags:
            tags.append("hide-input")
        cell["metadata"].setdefault("mystnb", {})["code_prompt_show"] = title
        cell["source"] = TITLE.sub("", source, count=1)
    return notebook


def open_folded(translator, node) -> None:
    """Open a folded cell as a native element, named by its title."""
    title = html.escape(node["prompt_show"])
    translator.body.append(f'<details class="folded"><summary>{title}</summary>\n')


def close_folded(translator, node) -> None:
    """Close a folded cell."""
    translator.body.append("</details>\n")


def fold_notebook(app, docname: str, source: list[str]) -> None:
    """Fold the cells when Sphinx reads a notebook."""
    from sphinx.errors import ExtensionError

    path = Path(app.env.doc2path(docname))
    if path.suffix == ".ipynb":
        finished = path.stem not in read_unfinished()
        try:
            folded = fold_cells(json.loads(source[0]), finished)
            source[0] = json.dumps(folded)
        except ValueError as error:
            raise ExtensionError(f"{docname}: {error}") from error


def setup(app) -> None:
    """Connect to Sphinx's reading of files, and to MyST-NB's hidden cells."""
    from myst_nb.sphinx_ext import HideCodeCellNode

    app.connect("source-read", fold_notebook)
    app.add_node(HideCodeCellNode, override=True, html=(open_folded, close_folded))
