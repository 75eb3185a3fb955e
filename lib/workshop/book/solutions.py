"""Solutions as chapters show them: folded, and copied from the tested source.

A chapter holds, after each exercise, a block that begins
`<summary>Solution of <code>check_x</code></summary>`. It is plain HTML and
Markdown, which pages, Colab and Jupyter all fold. `python -m
workshop.book.solutions chapters/*.md` fills every such block anew; a test
holds them fresh.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

from attnbook.exercises.exercise import Exercise

BLOCK = re.compile(
    r"<details>\n<summary>Solution of <code>(check_\w+)</code></summary>\n"
    r".*?</details>",
    re.DOTALL,
)
MODULE = re.compile(r"from (attnbook\.exercises\.\w+) import \(?\s*check_")


def find_exercises(text: str) -> dict[str, Exercise]:
    """Return the exercises that a chapter's text can name, by their names."""
    modules = [importlib.import_module(name) for name in MODULE.findall(text)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Exercise)
    }


def write_solution(name: str, exercise: Exercise) -> str:
    """Return the folded solution of an exercise, after its helpers."""
    shown = (*exercise.helpers, exercise.solution)
    source = "\n\n\n".join(inspect.getsource(f).rstrip() for f in shown)
    return (
        f"<details>\n<summary>Solution of <code>{name}</code></summary>\n\n"
        f"```python\n{source}\n```\n\n</details>"
    )


def refresh_solutions(text: str) -> str:
    """Return a chapter's text with every folded solution fresh.

    Raises:
        ValueError: if a block names a check that the chapter does not import.
    """
    known = find_exercises(text)

    def fresh(found: re.Match) -> str:
        name = found.group(1)
        if name not in known:
            raise ValueError(
                f"a solution of {name} is folded in, but the chapter imports "
                f"only {', '.join(sorted(known)) or 'no check'}"
            )
        return write_solution(name, known[name])

    return BLOCK.sub(fresh, text)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(refresh_solutions(path.read_text("utf8")), "utf8")
