"""Mounts: the HTML at which a page brings a widget or a question to life.

Importing this needs no widget library.
"""

import json
import math
from html import escape


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
