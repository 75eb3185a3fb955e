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

import html
import json
import re
from pathlib import Path

# How Jupyter and Colab fold a cell's code.
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}
KINDS = ("setup", "proof", "plumbing")
TITLE = re.compile(r"\A# @title (\S.*)$\n?", re.M)


def find_kind(tags: list[str]) -> str:
    """Return the kind of a code cell: one of `KINDS`, or "open"."""
    return next((kind for kind in KINDS if kind in tags), "open")


def read_title(source: str) -> str | None:
    """Return the title in a cell's first line, if it has one."""
    found = TITLE.match(source)
    return found[1].strip() if found else None


def read_source(cell: dict) -> str:
    """Return a cell's source, which JSON may hold as a list of lines."""
    return "".join(cell["source"])


def fold_cells(notebook: dict) -> dict:
    """Return a notebook whose folded cells say their title on the page.

    Raises:
        ValueError: if a folded cell has no title; the message says which.
    """
    for number, cell in enumerate(notebook["cells"]):
        tags = cell["metadata"].setdefault("tags", [])
        kind = find_kind(tags)
        if cell["cell_type"] != "code" or kind == "open":
            continue
        source = read_source(cell)
        title = read_title(source)
        if title is None:
            raise ValueError(
                f"cell {number} is tagged {kind} but does not begin with "
                f"`# @title ...`: {source[:60]!r}"
            )
        if "hide-input" not in tags:
            tags.append("hide-input")
        shown = title.replace("Checked: ", "✓ Checked: ", 1)
        cell["metadata"].setdefault("mystnb", {})["code_prompt_show"] = shown
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
        try:
            source[0] = json.dumps(fold_cells(json.loads(source[0])))
        except ValueError as error:
            raise ExtensionError(f"{docname}: {error}") from error


def setup(app) -> None:
    """Connect to Sphinx's reading of files, and to MyST-NB's hidden cells."""
    from myst_nb.sphinx_ext import HideCodeCellNode

    app.connect("source-read", fold_notebook)
    app.add_node(HideCodeCellNode, override=True, html=(open_folded, close_folded))
