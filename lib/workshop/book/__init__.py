"""The Sphinx extension that builds the book's pages, offline and without Node.

Math is rendered while building, widgets are mounted without a kernel, figures
get the alternative text their code gave them. Nothing here imports torch.
"""

from importlib import import_module

PARTS = (
    "alternative_texts",
    "cell_kinds",
    "chapter_opening",
    "code",
    "declarations",
    "diagrams",
    "front_matter",
    "math",
    "misconceptions",
    "mounts",
    "page_context",
    "search",
    "sections",
    "site",
    "style",
    "translator",
)


def setup(app) -> dict:
    """Connect the parts to Sphinx."""
    for part in PARTS:
        import_module(f"workshop.book.{part}").setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
