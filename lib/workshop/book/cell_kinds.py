"""Kinds of cells: what teaches stays open, proofs and plumbing are folded.

A cell tagged `proof` asserts. A cell tagged `plumbing` loads records, builds
figures or tables. Both begin with `# @title ...`. On the page, a proof is a mark
in the margin and plumbing a link under its output; both open the code. Of the
notebook, only plumbing is hidden: JupyterLab's arrow keys skip hidden cells
(issue 11162). Like every other cell, both are executed by nbval.

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
HIDDEN = "remove-input"
RUN = re.compile(r"(?m)^(\w+: `python -m workshop\.experiments .*)\n?")


def find_kind(tags: list[str]) -> str:
    return next((kind for kind in KINDS if kind in tags), "open")


def take_runs(cell: dict) -> str:
    """Take the names of recorded runs out of a cell's outputs, as comments."""
    found = []
    for output in [*cell["outputs"]]:
        if output["output_type"] == "stream":
            text = "".join(output["text"])
            found += RUN.findall(text)
            output["text"] = RUN.sub("", text)
            if not output["text"]:
                cell["outputs"].remove(output)
    return "".join(f"\n# {run}" for run in dict.fromkeys(found))


def fold_cells(notebook: dict) -> dict:
    """Return a notebook whose folded cells say their title on the page.

    A folded cell without output joins the next of its kind, so that one link
    opens both. The code of a question holds the answer and is left out.
    """
    kept: list[dict] = []
    for number, cell in reversed([*enumerate(notebook["cells"])]):
        tags = cell["metadata"].setdefault("tags", [])
        kind = find_kind(tags)
        if cell["cell_type"] != "code" or kind == "open":
            kept.append(cell)
            continue
        source = "".join(cell["source"])
        if not (found := TITLE.match(source)):
            raise ValueError(
                f"cell {number} is tagged {kind} but does not begin with "
                f"`# @title ...`: {source[:60]!r}"
            )
        title = found[1].strip()
        cell["source"] = TITLE.sub("", source, count=1) + take_runs(cell)
        after = (x for x in reversed(kept) if HIDDEN not in x["metadata"]["tags"])
        target = next(after, cell)
        joins = target is not cell and find_kind(target["metadata"]["tags"]) == kind
        if joins and not cell["outputs"]:
            both = f"# {title}\n{cell['source']}\n\n{target['source']}"
            target["source"] = both
            continue
        tags.append(HIDDEN if title.startswith("Predict") else "hide-input")
        cell["metadata"].setdefault("mystnb", {})["code_prompt_show"] = title
        kept.append(cell)
    notebook["cells"] = kept[::-1]
    return notebook


def put_code_under_output(app, doctree, docname: str) -> None:
    from myst_nb.sphinx_ext import HideCodeCellNode

    for node in [*doctree.findall(HideCodeCellNode)]:
        cell = node.parent
        cell.remove(node)
        cell.append(node)


def open_folded(translator, node) -> None:
    """Open a folded cell as a native element, named by its title."""
    title = html.escape(node["prompt_show"].removeprefix("Code: "))
    proof = "tag_proof" in node.parent["classes"]
    recorded = "python -m workshop.experiments" in node.astext()
    sign = "✓" if proof else "Code and recorded run" if recorded else "Code"
    translator.body.append(
        f'<details class="folded {"proof" if proof else "plumbing"}">'
        f'<summary title="{title}">{sign}<span>{": " * (not proof)}{title}</span>'
        "</summary>\n"
    )


def close_folded(translator, node) -> None:
    translator.body.append("</details>\n")


def copy_texts(notebook: dict) -> dict:
    """Return the notebook with each figure's alternative text in its cell's metadata.

    `show_figure(fig, alt=...)` stores the text beside the picture; MyST-NB takes it
    from there.
    """
    for number, cell in enumerate(notebook["cells"]):
        found = [
            output.get("metadata", {}).get("image/png", {}).get("alt", "")
            for output in cell.get("outputs", [])
            if "image/png" in output.get("data", {})
        ]
        if not found:
            continue
        if len(found) > 1 or not found[0].strip():
            raise ValueError(
                f"cell {number} has {len(found)} figures with texts {found}; "
                "each cell may show one figure, with a text"
            )
        image = cell["metadata"].setdefault("mystnb", {})
        image.setdefault("image", {})["alt"] = found[0]
    return notebook


def change_notebook(app, docname: str, source: list[str]) -> None:
    """Fold the cells and copy the texts when Sphinx reads a notebook."""
    from sphinx.errors import ExtensionError

    if Path(app.env.doc2path(docname)).suffix == ".ipynb":
        try:
            notebook = copy_texts(json.loads(source[0]))
            source[0] = json.dumps(fold_cells(notebook))
        except ValueError as error:
            raise ExtensionError(f"{docname}: {error}") from error


def setup(app) -> None:
    from myst_nb.sphinx_ext import HideCodeCellNode

    app.connect("source-read", change_notebook)
    app.connect("doctree-resolved", put_code_under_output)
    app.add_node(HideCodeCellNode, override=True, html=(open_folded, close_folded))
