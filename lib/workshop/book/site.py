"""The site around the pages: its index, old addresses, a page for lost readers."""

from pathlib import Path

from workshop.book.chapter_opening import get_repository_address
from workshop.book.page_context import POLICY
from workshop.book.repository import GITHUB

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
<main><h1>{title}</h1><p><a href="{page}">Read on here</a>.</p></main>
</body>
</html>
"""
# Old addresses of pages, and where their content is now.
MOVED = {"chapters/misconceptions": "errata.html"}


def find_home_address(app) -> str:
    """Return where the pages will stand: as configured, or GitHub's place."""
    url = get_repository_address(app)
    if app.config.html_baseurl or not url.startswith(GITHUB):
        return app.config.html_baseurl
    owner, name = url.removeprefix(GITHUB).split("/")
    return f"https://{owner}.github.io/{name}/"


def show_home_address(app, pagename, templatename, context, doctree) -> None:
    """Tell the page for lost readers where the book stands."""
    if pagename == "404":
        context["home"] = find_home_address(app)


def write_index(app, exception) -> None:
    """Write the index and old addresses, which lead on."""
    if exception is not None or app.builder.name != "html":
        return
    out, first = Path(app.outdir), f"{app.config.root_doc}.html"
    title = app.config.html_title or app.config.project
    page = REDIRECT.format(policy=POLICY, title=title, page=first)
    (out / "index.html").write_text(page, "utf8")
    for old, new in MOVED.items():
        page = REDIRECT.format(policy=POLICY, title=title, page=new)
        (out / f"{old}.html").write_text(page, "utf8")


def setup(app) -> None:
    app.connect("html-page-context", show_home_address, priority=820)
    app.connect("build-finished", write_index, priority=900)
