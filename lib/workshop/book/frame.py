"""The frame of every page: its head, its menus, and where the reader is.

The templates beside this module replace the theme's, whose style sheets,
scripts and icon fonts (0.8 MB over the wire) then reach no page. What they
need to know of a page is gathered here, under the one name `book`.

Source: Sphinx, https://www.sphinx-doc.org/en/master/development/html_themes
"""

import fnmatch
import re
from pathlib import Path

import yaml
from docutils import nodes

from workshop.book.opening import format_chapter, format_first_page

TEMPLATES = Path(__file__).with_name("templates")
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
    """Return a chapter's number; None for a page that is no chapter."""
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
            for name in list_pages(app, entry)
        ]
        found.append({"caption": part["caption"], "entries": entries})
    return found


def list_pages(app, entry: dict) -> list[str]:
    """Return the pages that an entry of the contents names: a file, or many."""
    if "glob" not in entry:
        return [entry["file"]]
    return sorted(fnmatch.filter(app.env.found_docs, entry["glob"]))


def list_sections(toc: str) -> str:
    """Return the list of a page's sections without the page's own title."""
    inner = re.search(r"<ul>.*?(<ul>.*</ul>)\s*</li>\s*</ul>", toc, re.DOTALL)
    return inner[1] if inner else ""


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
        "sections": list_sections(context.get("toc") or ""),
        "about": find_first_sentence(doctree),
        "styles": [],
        "scripts": [],
    }
    if read_number(pagename) is not None:
        context["body"] = format_chapter(app, context, read_number(pagename))
    elif pagename == app.config.root_doc:
        context["body"] = format_first_page(app, context["body"])


def add_templates(app, config) -> None:
    """Put our templates before the theme's."""
    config.templates_path.append(str(TEMPLATES))


def setup(app) -> None:
    """Connect to Sphinx: our templates, and what they show."""
    app.connect("config-inited", add_templates, priority=900)
    app.connect("html-page-context", fill_context, priority=700)
