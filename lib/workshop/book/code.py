"""Code: marked where a colour says something, and plain text elsewhere.

Pygments puts every name, sign and blank into an element of its own. Most have
no colour here; without them a page has half the elements, and a slow computer
lays it out in half the time.

Source: Pygments' formatters, https://pygments.org/docs/formatterdevelopment
"""

from pygments.formatters import HtmlFormatter

KINDS = {
    "k": {"k", "kn", "kd", "kr", "ow"},
    "m": {"kc", "mi", "mf", "mb", "mh", "il"},
    "s": {"s", "s1", "s2", "sa", "sd", "se", "si", "sx", "sr"},
    "c": {"c", "c1", "ch", "cm"},
    "nf": {"nf", "nc", "nd"},
    "nb": {"nb", "bp", "ne", "fm"},
    "go": {"gp", "go"},
}
KIND = {short: kind for kind, all_ in KINDS.items() for short in all_}


class CodeFormatter(HtmlFormatter):
    """Pygments' formatter, with elements only for tokens that have a colour."""

    def _get_css_classes(self, ttype) -> str:
        return KIND.get(super()._get_css_class(ttype), "")

    def _wrap_pre(self, inner):
        yield 0, "<pre>"
        yield from inner
        yield 0, "</pre>"


def choose_formatter(app) -> None:
    """Make Sphinx highlight code with our formatter."""
    if app.builder.format == "html":
        app.builder.highlighter.formatter = CodeFormatter


def setup(app) -> None:
    app.connect("builder-inited", choose_formatter)
