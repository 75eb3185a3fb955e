"""Markup: what no style and no reader asks for is left out of the pages.

Sphinx wraps each word of inline code, each cross-reference and each cell of a
table into one element more, and its theme adds the settings of a kernel that
these pages do not start. Without them a page of tables has half the elements.

Source: Sphinx, https://www.sphinx-doc.org/en/master/development/html_themes
"""

import re

INLINE = re.compile(
    r'<code class="docutils literal notranslate">(.*?)</code>', re.S
)
WORD = re.compile(r'<span class="pre">(.*?)</span>', re.S)
CROSS = re.compile(
    r'<span class="(?:std std-(?:doc|ref)|doc)">((?:(?!</?span).)*)</span>',
    re.S,
)
CELL = re.compile(r"<(td|th)\b([^>]*)><p>((?:(?!</?p\b).)*)</p>\s*</\1>", re.S)
KERNEL = re.compile(
    r'<script type="text/x-thebe-config">.*?</script>\s*'
    r"<script>kernelName = .*?</script>",
    re.S,
)


def shorten_markup(body: str) -> str:
    """Return a page's HTML without elements that nothing needs."""
    body = INLINE.sub(
        lambda m: f"<code>{WORD.sub(lambda w: w[1], m[1])}</code>", body
    )
    body = CROSS.sub(r"\1", body)
    return KERNEL.sub("", CELL.sub(r"<\1\2>\3</\1>", body))


def shorten_page(app, pagename, templatename, context, doctree) -> None:
    """Thin out a page."""
    if context.get("body"):
        context["body"] = shorten_markup(context["body"])


def setup(app) -> None:
    """Connect to Sphinx at every page."""
    app.connect("html-page-context", shorten_page, priority=806)
