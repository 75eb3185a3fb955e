"""The frame of every page: its head, its menus, and where the reader is.

What the theme's templates need to know of a page is gathered here, under the
one name `book`.

Source: Sphinx, https://www.sphinx-doc.org/en/master/development/html_themes
"""

import fnmatch
import re
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.environment.adapters.toctree import TocTree

# Nothing may be asked of another host; widgets are imported from blobs.
POLICY = "default-src 'self' 'unsafe-inline' data: blob:"
# Before the first paint, so that no page flashes in the wrong colours.
FIRST = (
    "try{const m=localStorage.getItem('mode');"
    "if(m=='light'||m=='dark')document.documentElement.dataset.theme=m}"
    "catch{}document.documentElement.classList.add('js')"
)
NUMBER = re.compile(r"(\d\d)_\w+$")


def read_number(docname: str) -> int | None:
    found = NUMBER.search(docname)
    return int(found[1]) if found else None


def list_parts(app) -> list[dict]:
    """Return the table of contents: parts, each with its pages' titles."""
    contents = yaml.safe_load((Path(app.srcdir) / "_toc.yml").read_text("utf8"))
    found = []
    for part in contents["parts"]:
        entries = [
            {
                "doc": name,
                "title": app.env.titles[name].astext(),
                "number": read_number(name),
                "slug": name.rpartition("/")[2],
            }
            for entry in part["chapters"]
            # An entry names a file, or many.
            for name in sorted(
                fnmatch.filter(app.env.found_docs, entry.get("glob", entry.get("file")))
            )
        ]
        found.append({"caption": part["caption"], "entries": entries})
    return found


def list_sections(app, pagename: str) -> str:
    """Return the list of a page's sections without the page's own title."""
    if pagename not in app.env.tocs:
        return ""
    contents = TocTree(app.env).get_toc_for(pagename, app.builder)
    lists = [*contents.findall(nodes.bullet_list)]
    inner = lists[1] if len(lists) > 1 else None
    return app.builder.render_partial(inner)["fragment"] if inner else ""


def find_first_sentence(doctree) -> str:
    """Return the first sentence of a page, for those who list pages."""
    if doctree is None:
        return ""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if text:
            return re.split(r"(?<=[.?!]) ", text)[0][:300]
    return ""


def fill_context(app, pagename, templatename, context, doctree) -> None:
    """Give the templates what they show of a page."""
    context["book"] = {
        "policy": POLICY,
        "first": FIRST,
        "parts": list_parts(app),
        "number": read_number(pagename),
        "landing": pagename == app.config.root_doc,
        "sections": list_sections(app, pagename),
        "about": find_first_sentence(doctree),
        "styles": [],
        "scripts": [],
    }


def setup(app) -> None:
    app.connect("html-page-context", fill_context, priority=700)
