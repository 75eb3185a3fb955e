"""Math: LaTeX to MathML while the book is built, by KaTeX and without Node.

The browser then needs no script and no font file for a formula, and a screen
reader meets fractions, roots and indices as MathML. A formula that KaTeX cannot
read stops the build.

Source: KaTeX, https://katex.org/docs/options, which the wheel
    sphinxcontrib-katex carries; its engine is V8, from the wheel mini-racer
"""

import atexit
import html
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

RAW = re.compile(r'<span class="math">\\\((.*?)\\\)</span>', re.DOTALL)
# MathML Core knows no space around the name of a function (KaTeX ends it with
# U+2061), and takes a minus after a bracket or a relation for a difference.
END = r"(?=<(?!mo|mrow><mo|/))"
NAMED = "<mi[^>]*>[a-z]{2,}</mi><mo>\u2061</mo>"
LIMITED = "m(?:sub|sup|under)>"
INDEXED = f"<{LIMITED}<mrow>{NAMED}</mrow>"
ITEM = "</m(?:i|n|sub|sup|subsup|row|frac)>"
THIN = r'\1<mspace width="0.1667em"/>'
MINUS = "<mo>\N{MINUS SIGN}</mo>"
SPACES = [
    (f"({ITEM})(?={NAMED}|{INDEXED})", THIN),
    (f"({NAMED}){END}", THIN),
    (f"({INDEXED}<m[in]>[^<]*</m[in]></{LIMITED}){END}", THIN),
    (
        rf"(<mo[^>]*>[(\[=≈≤≥,]</mo>){MINUS}",
        r"\1" + MINUS.replace("<mo", '<mo form="prefix"'),
    ),
]
QUIZ = re.compile(
    r'(<div data-book-widget="(?:quiz|prediction)">'
    r'<script type="application/json">)(.*?)(</script>)',
    re.DOTALL,
)
# What must not begin a line after a formula.
CLOSING = re.compile(r"[.,;:!?)\]\N{RIGHT DOUBLE QUOTATION MARK}]+")


@cache
def start_engine():
    from py_mini_racer import MiniRacer

    katex = Path(find_spec("sphinxcontrib.katex").origin).parent
    made = MiniRacer()
    # Left to the interpreter's end, closing waits for ever on Python 3.13.
    atexit.register(made.close)
    made.eval((katex / "katex.min.js").read_text("utf8"))
    return made


@cache
def convert_to_mathml(tex: str, display: bool = False) -> str:
    options = {
        "displayMode": display,
        "output": "mathml",
        "throwOnError": True,
        "strict": "ignore",
    }
    call = f"katex.renderToString({json.dumps(tex)}, {json.dumps(options)})"
    try:
        made = start_engine().eval(call)
    except Exception as error:
        why = str(error).strip().splitlines()[0]
        raise ValueError(f"KaTeX cannot read {tex!r}: {why}") from error
    found = re.search(r"<math.*</math>", made, re.DOTALL).group(0)
    for pattern, spaced in SPACES:
        found = re.sub(pattern, spaced, found)
    return found


def render_formula(tex: str, place, display: bool = False) -> str:
    """Return a formula as MathML, or as it stands with a warning of its place.

    `make book` makes errors of warnings, and shows all of them.
    """
    try:
        return convert_to_mathml(tex, display)
    except ValueError as error:
        logging.getLogger(__name__).warning(str(error), location=place)
        return f"<code>{html.escape(tex)}</code>"


def write_inline(self, node: nodes.math) -> None:
    self.body.append(render_formula(node.astext(), node))
    raise nodes.SkipNode


def write_block(self, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number if it has one.

    Formulas side by side are one element each, so that a narrow page puts them
    below each other.
    """
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    # KaTeX knows `aligned` alone.
    tex = re.sub(r"\{(align|eqnarray)\*?\}", "{aligned}", node.astext())
    parts = split_formulas(tex)
    for part in parts:
        shown = render_formula(part, node, display=True)
        if len(parts) > 1:
            shown = shown.replace('display="block"', 'displaystyle="true"', 1)
        self.body.append(f"{shown}\n")
    if node.get("number"):
        self.body.append(f'<span class="eqno">({node["number"]})</span>')
    self.body.append("</div>\n")
    raise nodes.SkipNode


def split_formulas(tex: str) -> list[str]:
    r"""Return the formulas that `\qquad` separates, outside of any group."""
    tokens = r"(\\(?:begin|end|left|right)\b|\\?[{}]|\\qquad\b)"
    parts, depth = [""], 0
    for token in re.split(tokens, tex):
        depth += token in ("{", "\\begin", "\\left")
        depth -= token in ("}", "\\end", "\\right")
        if token == "\\qquad" and not depth:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def keep_punctuation(app, doctree, docname: str) -> None:
    """Keep each inline formula on one line with the punctuation after it."""
    if app.builder.format != "html":
        return
    for node in [*doctree.findall(nodes.math)]:
        text = node.next_node(descend=False, siblings=True)
        if not isinstance(text, nodes.Text):
            continue
        if found := CLOSING.match(text.astext()):
            # By identity: texts with the same letters are equal.
            siblings = text.parent.children
            place = next(i for i, x in enumerate(siblings) if x is text)
            text.parent[place] = nodes.Text(text.astext()[found.end() :])
            together = nodes.inline(classes=["together"])
            node.replace_self(together)
            together += [node, nodes.Text(found[0])]


def render_outputs(app, doctree, docname: str) -> None:
    """Render the formulas that stand in the notebooks' HTML outputs."""
    if app.builder.format != "html":
        return
    for node in [*doctree.findall(nodes.raw)]:
        if "html" in node["format"].split():
            shown = render_text(node.astext(), docname)
            node.replace_self(nodes.raw("", shown, format="html"))


def render_text(text: str, place: str) -> str:
    """Return an output's HTML with its formulas as MathML."""
    text = RAW.sub(lambda m: render_formula(html.unescape(m[1]), place), text)
    return QUIZ.sub(lambda m: m[1] + render_state(m[2], place) + m[3], text)


def render_state(text: str, place: str) -> str:
    """Return a quiz's state with each formula's MathML beside its LaTeX."""
    state = json.loads(text)

    def walk(value) -> None:
        if isinstance(value, dict):
            if "math" in value:
                value["mathml"] = render_formula(value["math"], place)
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(state)
    return json.dumps(state, ensure_ascii=False).replace("<", "\\u003c")


def setup(app) -> None:
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    app.connect("doctree-resolved", render_outputs)
    app.connect("doctree-resolved", keep_punctuation)
