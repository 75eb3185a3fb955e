"""Mounts: the HTML at which a page brings a widget or a question to life.

Importing this needs no widget library. A widget's script and what widgets share
are one text, because neither a notebook's front end nor a page opened from a
folder can load one script from another.

Source: anywidget's front-end module, https://anywidget.dev/en/afm
"""

import json
import math
from html import escape
from pathlib import Path

SHARED = Path(__file__).with_name("shared.js")


def read_module(script: Path) -> str:
    """Return the text of a widget's module."""
    return SHARED.read_text("utf8") + "\n" + script.read_text("utf8")


def read_modules() -> dict[str, str]:
    """Return the text of every widget's module, by its stem."""
    scripts = sorted(SHARED.parent.glob("*.js"))
    return {x.stem: read_module(x) for x in scripts if x != SHARED}


def encode_nonfinite(state):
    """Return state with non-finite numbers as text.

    JSON cannot carry NaN and infinities; JavaScript's Number reads the text.
    """
    if isinstance(state, dict):
        return {name: encode_nonfinite(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [encode_nonfinite(value) for value in state]
    if isinstance(state, float) and not math.isfinite(state):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(state, "NaN")
    return state


def render_mount(stem: str, state: dict, fallback: str) -> str:
    """Return the HTML at which a page mounts a widget.

    Every "<" of the state is escaped, so that no label can end or open a
    script.

    Args:
        stem: the name of the widget's module.
        state: what the widget shows, as JSON can carry it.
        fallback: HTML for a reader without JavaScript; its text is escaped.
    """
    text = json.dumps(encode_nonfinite(state), ensure_ascii=False, allow_nan=False)
    return (
        f'<div data-book-widget="{escape(stem)}">'
        '<script type="application/json">'
        f"{text.replace('<', chr(92) + 'u003c')}</script>{fallback}</div>"
    )
