"""The index of diagrams: every diagram of the chapters, to be copied.

`make pages` lists them with their sections, from the stored notebooks. A link
that reads SVG leads to the chapter; on the built page it leads to the file.
"""

import html
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from docutils import nodes

from workshop.book.sections import make_anchor

CHAPTERS = Path("chapters")
DOCUMENT = "chapters/teaching"
LINK = "SVG"
TITLE = re.compile(r"# @title (?:Diagram: |Picture: )?(.*)")


@dataclass(frozen=True)
class Drawn:
    """A diagram of a chapter.

    Attributes:
        chapter: the chapter's file name without ending.
        title: what it shows, as its cell's title says.
        section: the heading that it stands under.
    """

    chapter: str
    title: str
    section: str


def list_diagrams(path: Path) -> list[Drawn]:
    """Return the diagrams of a notebook, in their order.

    Raises:
        ValueError: if the cell of a diagram has no title.
    """
    section, found = "", []
    for cell in json.loads(path.read_text("utf8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            section = (re.findall(r"(?m)^##+ +(.*)$", source) or [section])[-1]
        for output in cell.get("outputs", []):
            if "image/svg+xml" in output.get("data", {}):
                title = TITLE.match(source)
                if not title:
                    raise ValueError(
                        f"{path.name}: the diagram under {section!r} has no "
                        "title: begin its cell with `# @title Diagram: ...`"
                    )
                found.append(Drawn(path.stem, title[1], section))
    return found


def write_diagrams() -> str:
    """Return a table of all diagrams."""
    rows = ["| chapter | diagram | file |", "|---|---|---|"]
    for path in sorted(CHAPTERS.glob("[0-9][0-9]_*.ipynb")):
        for x in list_diagrams(path):
            title = x.title[:1].upper() + x.title[1:]
            place = f"{x.chapter}.ipynb#{make_anchor(x.section)}"
            rows.append(
                f"| {int(x.chapter[:2])} | [{title}]({place}) "
                f"| [{LINK}]({x.chapter}.ipynb) |"
            )
    return "\n".join(rows)


def link_files(app, doctree, docname: str) -> None:
    """Let the links to diagrams lead to their files, with a name to save.

    Raises:
        ExtensionError: if a chapter has not as many diagrams as are listed.
    """
    if docname != DOCUMENT or app.builder.format != "html":
        return
    links = defaultdict(list)
    for link in doctree.findall(nodes.reference):
        if link.astext() == LINK:
            links[Path(link["refuri"]).stem].append(link)
    for chapter, found in links.items():
        files = list_files(app.env, f"chapters/{chapter}")
        if len(files) != len(found):
            from sphinx.errors import ExtensionError

            raise ExtensionError(
                f"{docname} lists {len(found)} diagrams of {chapter}, which "
                f"has {len(files)}: run make pages"
            )
        pairs = enumerate(zip(found, files, strict=True), start=1)
        for number, (link, file) in pairs:
            title = link.parent.parent.parent[1].astext()
            link.replace_self(write_link(chapter, number, file, title))


def list_files(env, docname: str) -> list[str]:
    """Return the names of a chapter's diagrams among the built images."""
    pictures = env.get_doctree(docname).findall(nodes.image)
    uris = [x["uri"] for x in pictures if x["uri"].endswith(".svg")]
    return [env.images[uri][1] for uri in uris]


def write_link(chapter: str, number: int, file: str, title: str) -> nodes.raw:
    """Return a link to a diagram's file."""
    name = f"{chapter}-diagram-{number}.svg"
    label = html.escape(f"{LINK}: {title}")
    text = (
        f'<a href="../_images/{file}" download="{name}" aria-label="{label}">{LINK}</a>'
    )
    return nodes.raw("", text, format="html")


def setup(app) -> None:
    """Connect to Sphinx, after references are resolved."""
    app.connect("doctree-resolved", link_files)
