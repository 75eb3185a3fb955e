"""One base for every widget: live in a notebook, and a static mount in a page.

Source: anywidget's front-end module, https://anywidget.dev/en/afm
"""

import json
import math
from html import escape
from pathlib import Path

import anywidget

from attnbook.widgets.module import read_module

SHARED = Path(__file__).with_name("shared.css")


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
    text = json.dumps(
        encode_nonfinite(state), ensure_ascii=False, allow_nan=False
    )
    return (
        f'<div data-book-widget="{escape(stem)}">'
        '<script type="application/json">'
        f"{text.replace('<', chr(92) + 'u003c')}</script>{fallback}</div>"
    )


class BookWidget(anywidget.AnyWidget):
    """A widget whose state travels twice: to a front end, and in the page.

    A subclass sets `_esm` (and `_css`) to the files beside it, its traits
    (plain lists, numbers and strings, tagged sync) and `fallback`. What
    widgets share comes before its own script and style sheet.
    """

    def __init_subclass__(cls, **kwargs):
        style, script = (cls.__dict__.get(name) for name in ("_css", "_esm"))
        if isinstance(style, Path):
            cls._css = SHARED.read_text("utf8") + style.read_text("utf8")
        if isinstance(script, Path):
            cls._esm = read_module(script)
        super().__init_subclass__(**kwargs)

    def fallback(self) -> str:
        """Return HTML for a reader without JavaScript; its text is escaped.

        Raises:
            NotImplementedError: unless the subclass defines it.
        """
        raise NotImplementedError(
            f"{type(self).__module__}: the widget {type(self).__name__} has no "
            "method fallback"
        )

    def state(self) -> dict:
        """Return the traits that the widget itself declares."""
        inherited = set(anywidget.AnyWidget.class_trait_names(sync=True))
        own = set(self.trait_names(sync=True)) - inherited
        return {
            name: getattr(self, name)
            for name in sorted(own)
            if not name.startswith("_")
        }

    def _repr_mimebundle_(self, **kwargs):
        """Add a static mount beside the live view; the page prefers it."""
        bundle = super()._repr_mimebundle_(**kwargs)
        # anywidget returns the data alone or with metadata, by its version.
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        stem = type(self).__module__.rpartition(".")[2]
        own = {
            # No address of an object: nbval compares this text.
            "text/plain": f"{type(self).__name__}()",
            "text/html": render_mount(stem, self.state(), self.fallback()),
        }
        return {**(data or {}), **own}, metadata
