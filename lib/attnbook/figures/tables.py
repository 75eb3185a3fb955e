"""Tables: rows of numbers and words, shown alike in every chapter.

    rows = {"attention": [12.34, 20.1], "one context vector": [25.0, None]}
    show_table(
        rows, columns=["all words", "long words"], first="model", unit="%"
    )

shows 12.3 %, 20.1 %, 25.0 % and a dash.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from attnbook.figures.display import display_or_print

DASH = "\N{EN DASH}"


def format_cell(value: Any, digits: int = 1, unit: str = "") -> str:
    """Return what a cell shows.

    Args:
        value: a number; a pair of numbers, the ends of a range; words; or
            None, for what was not measured.
        digits: of numbers, after the point.
        unit: written after numbers.
    """
    if value is None:
        return DASH
    if isinstance(value, str):
        return value.replace("|", "\\|").replace("\n", " ")
    if isinstance(value, tuple):
        low, high = (f"{float(end):.{digits}f}" for end in value)
        shown = low if low == high else f"{low}{DASH}{high}"
    elif isinstance(value, bool):
        return "yes" if value else "no"
    elif isinstance(value, Real) and float(value).is_integer() and not digits:
        shown = f"{int(value):,}"
    else:
        shown = f"{float(value):,.{digits}f}"
    return f"{shown} {unit}".rstrip()


def write_table(
    rows: Mapping[str, Sequence],
    columns: Sequence[str],
    *,
    first: str = "",
    digits: int | Sequence[int] = 1,
    unit: str | Sequence[str] = "",
) -> str:
    """Return a table as Markdown: a name and its cells in every row.

    Args:
        rows: by name, one cell for each column.
        columns: their heads.
        first: head of the column of names.
        digits: after the point; one number, or one for each column.
        unit: written after numbers; one, or one for each column.

    Raises:
        ValueError: if a row, the digits or the units have another length than
            the columns.
    """
    count = len(columns)
    places = [digits] * count if isinstance(digits, int) else list(digits)
    units = [unit] * count if isinstance(unit, str) else list(unit)
    named = {"digits": places, "unit": units}
    for name, cells in (named | {f"row {k!r}": v for k, v in rows.items()}).items():
        if len(cells) != count:
            raise ValueError(
                f"{name} has {len(cells)} entries but there are {count} "
                f"columns: {list(columns)}"
            )
    # A column whose cells are all numbers is aligned at the right.
    right = [
        all(not isinstance(cells[i], str) for cells in rows.values())
        for i in range(count)
    ]
    lines = [
        [first, *columns],
        ["---", *("---:" if aside else "---" for aside in right)],
    ]
    for name, cells in rows.items():
        shown = zip(cells, places, units, strict=True)
        lines.append([format_cell(name), *(format_cell(*one) for one in shown)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show_table(rows: Mapping[str, Sequence], columns: Sequence[str], **how):
    """Show a table below the cell; see `write_table`.

    Raises:
        ValueError: as `write_table`.
    """
    table = write_table(rows, columns, **how)
    display_or_print({"text/markdown": table, "text/plain": table})
