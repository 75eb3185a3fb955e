"""One base for every widget: live in a notebook, and a static mount in a page.

Source: anywidget's front-end module, https://anywidget.dev/en/afm
"""

from pathlib import Path

import anywidget

from attnbook.widgets.mount import read_module, render_mount

SHARED = Path(__file__).with_name("shared.css")


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
        """Return HTML for a reader without JavaScript; its text is escaped."""
        raise NotImplementedError(f"{type(self).__name__} has no method fallback")

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
