"""Code: marked where a colour says something, and plain text elsewhere.

Pygments puts every name, sign and blank into an element of its own. Most have
no colour here; without them a page has half the elements, and a slow computer
lays it out in half the time.

Source: Pygments' tokens, https://pygments.org/docs/tokens
"""

import re

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
PRE = re.compile(r"<pre>(.*?)</pre>", re.S)
PIECE = re.compile(r'<span class="(\w+)">([^<]*)</span>')
SPLIT = re.compile(r'<span class="(\w+)">([^<]*)</span><span class="\1">')


def merge_spans(code: str) -> str:
    """Return highlighted code with the marks that have a colour, joined."""
    code = code.removeprefix("<span></span>")

    def one(match: re.Match) -> str:
        kind = KIND.get(match[1])
        return f'<span class="{kind}">{match[2]}</span>' if kind else match[2]

    code, changed = PIECE.sub(one, code), 1
    while changed:
        code, changed = SPLIT.subn(r'<span class="\1">\2', code)
    return code


def shorten_code(app, pagename, templatename, context, doctree) -> None:
    """Thin out the code of a page."""
    if context.get("body"):
        context["body"] = PRE.sub(
            lambda m: f"<pre>{merge_spans(m[1])}</pre>", context["body"]
        )


def setup(app) -> None:
    """Connect to Sphinx at every page."""
    app.connect("html-page-context", shorten_code, priority=805)
