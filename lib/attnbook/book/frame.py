"""The frame of every page: its head, its menus, and where the reader is.

The templates beside this module replace the theme's, whose style sheets,
scripts and icon fonts (0.8 MB over the wire) then reach no page. What they
need to know of a page is gathered here, under the one name `book`.

Chapter: chapters/00_before_you_start
Source: Sphinx, https://www.sphinx-doc.org/en/master/development/html_themes
Axes: none
"""

import re
from pathlib import Path

import yaml
from docutils import nodes

from attnbook.book.repository import BRANCH, colab

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


def number(docname: str) -> int | None:
    """Return a chapter's number; None for a page that is no chapter."""
    found = NUMBER.search(docname)
    return int(found[1]) if found else None


def parts(app) -> list[dict]:
    """Return the table of contents: parts, each with its pages' titles."""
    contents = yaml.safe_load((Path(app.srcdir) / "_toc.yml").read_text("utf8"))
    found = []
    for part in contents["parts"]:
        entries = [
            {
                "doc": entry["file"],
                "title": app.env.titles[entry["file"]].astext(),
                "number": number(entry["file"]),
                "slug": entry["file"].rpartition("/")[2],
            }
            for entry in part["chapters"]
        ]
        found.append({"caption": part["caption"], "entries": entries})
    return found


def sections(toc: str) -> str:
    """Return the list of a page's sections without the page's own title."""
    inner = re.search(r"<ul>.*?(<ul>.*</ul>)\s*</li>\s*</ul>", toc, re.DOTALL)
    return inner[1] if inner else ""


def about(doctree) -> str:
    """Return the first sentence of a page, for those who list pages."""
    if doctree is None:
        return ""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if text:
            return re.split(r"(?<=[.?!]) ", text)[0][:300]
    return ""


def doings(app, context) -> str:
    """Return links under a chapter's title: to run it, to take it along."""
    options = app.config.html_theme_options
    ours = options.get("use_edit_page_button")  # else the URL is a stranger's
    url = options.get("repository_url", "") if ours else ""
    colab_too = (options.get("launch_buttons") or {}).get("colab_url")
    notebook = context["pathto"](f"_sources/{context['sourcename']}", 1)
    slug = Path(context["sourcename"]).stem
    made = app.builder.templates.environment.get_template("doings.html")
    return made.render(
        notebook=notebook,
        colab=colab(url, slug) if url and colab_too else "",
        source=f"{url}/edit/{BRANCH}/chapters/{slug}.md" if url else "",
    )


def gather(app, pagename, templatename, context, doctree) -> None:
    """Give the templates what they show of a page."""
    context["book"] = {
        "policy": POLICY,
        "first": FIRST,
        "parts": parts(app),
        "number": number(pagename),
        "landing": pagename == app.config.root_doc,
        "sections": sections(context.get("toc") or ""),
        "about": about(doctree),
        "styles": [],
        "scripts": [],
    }
    if number(pagename) is not None:
        context["body"] = context["body"].replace(
            "</h1>", "</h1>\n" + doings(app, context), 1
        )


def prefer_ours(app, config) -> None:
    """Put our templates before the theme's."""
    config.templates_path.append(str(TEMPLATES))


REDIRECT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={page}">
<title>{title}</title>
<link rel="icon" href="data:,">
</head>
<body>
<main><h1>{title}</h1><p><a href="{page}">The book begins here</a>.</p></main>
</body>
</html>
"""


def first_page(app, exception) -> None:
    """Lead from the folder's index to the book's first page."""
    if exception is None and app.builder.name == "html":
        page = REDIRECT.format(
            policy=POLICY,
            title=app.config.html_title or app.config.project,
            page=f"{app.config.root_doc}.html",
        )
        (Path(app.outdir) / "index.html").write_text(page, "utf8")


def setup(app) -> None:
    """Connect to Sphinx: our templates, and what they show."""
    app.connect("config-inited", prefer_ours, priority=900)
    app.connect("html-page-context", gather, priority=700)
    app.connect("build-finished", first_page, priority=900)
