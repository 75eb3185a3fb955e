"""Which chapter builds which module: `chapters.toml`."""

import tomllib
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("chapters.toml")


@cache
def read_table() -> dict[str, str]:
    """Return the chapter of every module that has a line; or "everywhere"."""
    found: dict[str, str] = {}
    for chapter, modules in tomllib.loads(TABLE.read_text("utf8")).items():
        for module in modules:
            if module in found:
                raise ValueError(
                    f"{TABLE.name} names {module} twice: built in "
                    f"{found[module]} and in {chapter}"
                )
            found[module] = chapter
    return found


def find_chapter(module: str) -> str:
    """Return the chapter that builds a module; or "everywhere".

    A package's line stands for its modules that have no line of their own.
    """
    table, name = read_table(), module
    while name:
        if name in table:
            return table[name]
        name = name.rpartition(".")[0]
    raise ValueError(f"{TABLE.name} has no line for {module} or its packages")
