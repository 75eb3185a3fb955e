"""The book's theme: its templates and style, and the HTML of its pages.

Sphinx writes more elements than these pages need (one around each word of
inline code, each cross-reference and the text of each cell of a table), and
roles that a screen reader cannot make sense of. The translator writes what the
style sheet and the readers need instead.

Source: Sphinx, https://www.sphinx-doc.org/en/master/development/html_themes;
    WAI-ARIA 1.2, https://www.w3.org/TR/wai-aria-1.2, roles list and listitem;
    DPUB-ARIA 1.1, which deprecates doc-biblioentry
"""

import html
import re
from itertools import count
from pathlib import Path

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator

from workshop.book.images import write_image

NAME = "attention_measured"
FOLDER = Path(__file__).with_name("theme")
KERNEL = r"x-thebe-config|<script>kernelName = "
DEPTHS = {
    "core": "The shortest way through the chapter",
    "deeper": "For later: no core section needs it",
}
CROSS_REFERENCES = {"std", "std-doc", "std-ref", "doc"}
# Characters of inline code that any line of a desktop page has room for.
ONE_LINE = 60


class BookTranslator(HTML5Translator):
    """Writes a page's HTML with no more elements than it needs."""

    def __init__(self, document, builder):
        super().__init__(document, builder)
        self.diagrams = count(1)

    def visit_literal(self, node) -> None:
        if node["classes"] or node.get("language"):
            super().visit_literal(node)
            return
        text = node.astext()
        start = "<code>" if len(text) <= ONE_LINE else '<code class="long">'
        self.body.append(f"{start}{self.encode(text)}</code>")
        raise nodes.SkipNode

    def visit_Text(self, node) -> None:  # noqa: N802
        super().visit_Text(node)
        kept = "\N{NO-BREAK SPACE}%"
        self.body[-1] = re.sub(r"(?<=\d) %", kept, self.body[-1])

    def visit_inline(self, node) -> None:
        """Write the text of a cross-reference without an element."""
        if node["classes"] and {*node["classes"]} <= CROSS_REFERENCES:
            return
        super().visit_inline(node)
        if "depth" in node["classes"]:
            said = f'<span title="{DEPTHS[node.astext()]}"'
            self.body[-1] = self.body[-1].replace("<span", said, 1)

    def depart_inline(self, node) -> None:
        if not (node["classes"] and {*node["classes"]} <= CROSS_REFERENCES):
            super().depart_inline(node)

    def visit_paragraph(self, node) -> None:
        if not is_alone_in_cell(node):
            super().visit_paragraph(node)

    def depart_paragraph(self, node) -> None:
        if not is_alone_in_cell(node):
            super().depart_paragraph(node)

    def visit_table(self, node) -> None:
        self._table_row_indices.append(0)
        self.body.append('<div class="table-scroll">')
        self.body.append(self.starttag(node, "table"))

    def depart_table(self, node) -> None:
        super().depart_table(node)
        self.body.append("</div>\n")

    def visit_row(self, node) -> None:
        chapter = node.get("chapter")
        about = {"data-chapter": chapter} if chapter else {}
        self.body.append(self.starttag(node, "tr", "", **about))
        node.column = 0

    def visit_entry(self, node) -> None:
        super().visit_entry(node)
        if not node.astext().strip() and self.context[-1] == "</th>\n":
            self.body[-1] = self.body[-1].replace("<th", "<td", 1)
            self.context[-1] = "</td>\n"

    def visit_citation(self, node) -> None:
        if not isinstance(node.previous_sibling(), nodes.citation):
            self.body.append("<div>\n")
        self.body.append(self.starttag(node, "div", classes=["citation"]))

    def add_permalink_ref(self, node, title: str) -> None:
        """Add a link to a heading, with a name that can be spoken."""
        if node["ids"] and self.builder.add_permalinks:
            what = "Link to this section"
            self.body.append(
                f'<a class="headerlink" href="#{node["ids"][0]}"'
                f' title="{what}" aria-label="{what}">#</a>'
            )

    def depart_title(self, node) -> None:
        super().depart_title(node)
        if past := node.parent.get("past"):
            target, text = past
            self.body.append(
                f'<p class="past"><a href="#{target}">{html.escape(text)}</a></p>\n'
            )

    def visit_reference(self, node) -> None:
        """Open a link; one to a figure leads to the file that is shipped."""
        if find_linked_figure(node) == ".png":
            node["refuri"] = node["refuri"].removesuffix("png") + "webp"
        if find_linked_figure(node) != ".svg":  # a diagram has its own link
            super().visit_reference(node)

    def depart_reference(self, node) -> None:
        if find_linked_figure(node) != ".svg":
            super().depart_reference(node)

    def visit_image(self, node) -> None:
        written = write_image(self.builder, node, self.diagrams)
        if written is None:
            super().visit_image(node)
            return
        self.body.append(written)
        raise nodes.SkipNode


def is_alone_in_cell(node) -> bool:
    """Return whether a paragraph is all that a cell of a table contains."""
    return isinstance(node.parent, nodes.entry) and len(node.parent) == 1


def find_linked_figure(node) -> str:
    """Return the ending of the picture's file that a link shows and opens."""
    if len(node) == 1 and isinstance(node[0], nodes.image):
        return Path(node.get("refuri", "")).suffix
    return ""


def drop_kernel_settings(app, doctree, docname: str) -> None:
    """Drop what sphinx-thebe adds: settings of a kernel that is not started."""
    for node in [*doctree.findall(nodes.raw)]:
        if re.search(KERNEL, node.astext()):
            node.parent.remove(node)


def disconnect_default_theme(app) -> None:
    """Disconnect the theme that Jupyter Book always loads from our pages.

    It would compute buttons for templates that are not used.
    """
    for listener in [*app.events.listeners.get("html-page-context", ())]:
        if listener.handler.__module__.startswith("sphinx_book_theme"):
            app.disconnect(listener.id)


def setup(app) -> None:
    app.add_html_theme(NAME, str(FOLDER))
    app.set_translator("html", BookTranslator)
    app.connect("builder-inited", disconnect_default_theme)
    app.connect("doctree-resolved", drop_kernel_settings, priority=900)
