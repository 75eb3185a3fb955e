"""The Sphinx extension that builds the book's pages, offline and without Node.

Math is rendered while building, widgets are mounted without a kernel, figures
get the alternative text their code gave them. Nothing here imports torch.
"""

import gc
from importlib import import_module

# How many new objects Python makes before it looks for garbage, instead of 700.
# Sphinx keeps the trees of all pages, and each search would go through them: a
# sixth of the time of a build.
NEW_OBJECTS = 200_000
PARTS = (
    "cell_kinds",
    "chapter_opening",
    "code",
    "generated",
    "math",
    "mounts",
    "page_context",
    "rewriting",
    "search",
    "sections",
    "site",
    "translator",
)


def setup(app) -> dict:
    gc.set_threshold(NEW_OBJECTS)
    for part in PARTS:
        import_module(f"workshop.book.{part}").setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
