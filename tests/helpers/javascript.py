"""Call the pure functions of a widget's module, in an engine from pip."""

import json
import re
from pathlib import Path

import quickjs

from attnbook.widgets.mount import read_module

WIDGETS = Path(__file__).parents[2] / "lib/attnbook/widgets"


class Module:
    """A widget's JavaScript module; `call(name, ...)` calls what it exports."""

    def __init__(self, stem):
        text = read_module(WIDGETS / f"{stem}.js")
        self.names = re.findall(r"^export function (\w+)", text, re.M)
        self.context = quickjs.Context()
        kept = f"\nglobalThis.exported = {{ {', '.join(self.names)} }};"
        self.context.module(text + kept)

    def call(self, name, *values):
        """Return what the function gives, through JSON both ways."""
        given = ", ".join(json.dumps(v, ensure_ascii=False) for v in values)
        call = f"JSON.stringify(exported.{name}({given})) ?? 'null'"
        return json.loads(self.context.eval(call))
