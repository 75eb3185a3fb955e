"""Alternative texts: what a figure's code says of it, carried to the page.

`show_figure(fig, alt=...)` stores the text beside the picture; MyST-NB takes
it from the cell's metadata. This copies it from the one to the other.

Source: MyST-NB, https://myst-nb.readthedocs.io, "Embedding outputs"
"""

import json
from pathlib import Path

from sphinx.errors import ExtensionError


def find_texts(cell: dict) -> list[str]:
    """Return the alternative texts of the pictures that a cell stored."""
    return [
        about.get("alt", "")
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
        for about in [output.get("metadata", {}).get("image/png", {})]
    ]


def copy_texts(notebook: dict) -> dict:
    """Return the notebook with each figure's text in its cell's metadata."""
    for number, cell in enumerate(notebook["cells"]):
        found = find_texts(cell)
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


def copy_texts_on_read(app, docname: str, source: list[str]) -> None:
    """Carry the texts when Sphinx reads a notebook."""
    if Path(app.env.doc2path(docname)).suffix == ".ipynb":
        try:
            source[0] = json.dumps(copy_texts(json.loads(source[0])))
        except ValueError as error:
            raise ExtensionError(f"{docname}: {error}") from error


def setup(app) -> None:
    """Connect to Sphinx's reading of files."""
    app.connect("source-read", copy_texts_on_read)
