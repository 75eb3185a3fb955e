"""Formulas in words: what a screen reader says that cannot read MathML.

The words follow the formula's tree: a fraction is "a over b", a lower index
"a sub b". They become the formula's `aria-label`; those who can read MathML
still find its parts.

Source: MathML Core, https://www.w3.org/TR/mathml-core
"""
# ruff: noqa: RUF001 (signs that look like others are what this is about)

import unicodedata
from xml.etree import ElementTree

SIGNS = {
    "=": "equals",
    "≠": "is not",
    "<": "is less than",
    ">": "is greater than",
    "≤": "is at most",
    "≥": "is at least",
    "≈": "is about",
    "∝": "is proportional to",
    "∈": "in",
    "⊇": "contains",
    "⊆": "is part of",
    "∩": "and in",
    "+": "plus",
    "−": "minus",
    "±": "plus or minus",
    "×": "times",
    "⋅": "times",
    "⊙": "elementwise times",
    "/": "over",
    "∑": "sum",
    "∏": "product",
    "∫": "integral",
    "∂": "partial",
    "∇": "gradient",
    "∞": "infinity",
    "→": "to",
    "←": "becomes",
    "↦": "maps to",
    "…": "and so on",
    "⋯": "and so on",
    "′": "prime",
    "⊤": "transposed",
    "∥": "norm",
    "|": "bar",
    "(": "(",
    ")": ")",
    "∼": "is distributed as",
}
ABOVE = {"ˉ": "bar", "¯": "bar", "~": "tilde", "^": "hat", "→": "vector"}
SILENT = {"annotation", "mspace"}


def speak_sign(text: str) -> str:
    """Return the word for a sign; letters say themselves."""
    if text in SIGNS:
        return SIGNS[text]
    if len(text) == 1 and "GREEK" in unicodedata.name(text, ""):
        return unicodedata.name(text).split()[-1].lower()
    return "".join(c for c in text if c not in "\u2061\u2062\u2063\u200b")


def speak_script(base: str, below: str = "", above: str = "") -> str:
    """Return a letter with its indices in words."""
    words = f"{base} sub {below}" if below else base
    if base in {"sum", "product", "integral"} or base in {"max", "min"}:
        words = f"{base} over {below}" if below else base
        return f"{words} to {above}" if above else words
    if above in {"prime", "transposed"}:
        return f"{words} {above}"
    return f"{words} to the {above}" if above else words


def speak_node(node: ElementTree.Element) -> str:
    """Return a part of a formula in words."""
    kind = node.tag.rpartition("}")[2]
    if kind in SILENT:
        return ""
    if not len(node):
        return speak_sign((node.text or "").strip())
    parts = [words for child in node if (words := speak_node(child))]
    match kind, parts:
        case "mfrac", [upper, lower]:
            return f"{upper} over {lower}"
        case "msqrt", _:
            return f"square root of {' '.join(parts)}"
        case "msub" | "munder", [base, below]:
            return speak_script(base, below)
        case "msup", [base, above]:
            return speak_script(base, above=above)
        case "mover", [base, above]:
            mark = next((m for s, m in ABOVE.items() if s in above), "")
            return f"{base} {mark}" if mark else speak_script(base, above=above)
        case "msubsup" | "munderover", [base, below, above]:
            return speak_script(base, below, above)
        case "mtable", _:
            return "; ".join(parts)
    return " ".join(parts)


def speak_formula(mathml: str) -> str:
    """Return a formula, given as MathML, in words."""
    return " ".join(speak_node(ElementTree.fromstring(mathml)).split())
