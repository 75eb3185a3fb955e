"""Access: what docutils writes that a screen reader could not make sense of.

Source: WAI-ARIA 1.2, https://www.w3.org/TR/wai-aria-1.2, roles list and
    listitem; DPUB-ARIA 1.1, which deprecates doc-biblioentry
"""

import re

EMPTY_HEAD = re.compile(r"<th\b([^>]*)>\s*(?:<p>\s*</p>)?\s*</th>")
PERMALINK = re.compile(
    r'(<h[1-6][^>]*>)(.*?)<a class="headerlink" href="([^"]+)"[^>]*>#</a>'
)


def fix_table_headers(body: str) -> str:
    """Return a page's text with roles and names that hold."""
    body = body.replace(' role="doc-biblioentry"', "")
    body = body.replace('<div role="list" class="citation-list">', "<div>")
    body = EMPTY_HEAD.sub(r"<td\1></td>", body)
    return PERMALINK.sub(
        r'\1\2<a class="headerlink" href="\3" title="Link to this section"'
        r' aria-label="Link to this section">#</a>',
        body,
    )


def fix_page(app, pagename, templatename, context, doctree) -> None:
    """Mend the page."""
    if context.get("body"):
        context["body"] = fix_table_headers(context["body"])


def setup(app) -> None:
    """Connect to Sphinx at every page."""
    app.connect("html-page-context", fix_page, priority=810)
