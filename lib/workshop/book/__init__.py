"""The Sphinx extension that builds the book's pages, offline and without Node.

Math is rendered while building, widgets are mounted without a kernel, figures
get the alternative text their code gave them. Nothing here imports torch.
"""


def setup(app) -> dict:
    """Connect the parts to Sphinx."""
    from workshop.book import (
        access,
        alternative,
        cell_kinds,
        code,
        declarations,
        frame,
        front_matter,
        markup,
        math,
        mounts,
        pictures,
        sections,
        site,
        style,
    )

    for part in (
        access,
        alternative,
        cell_kinds,
        code,
        declarations,
        frame,
        front_matter,
        markup,
        math,
        mounts,
        pictures,
        sections,
        site,
        style,
    ):
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
