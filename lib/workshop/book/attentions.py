"""Every attention of the book: its formula, its cost, what it is for.

A cost is a formula of axes, written once, in the file of its chapter in
cost_rows/: the cheat sheet shows it, and its test runs the library's code and
counts.

Source: the modules that the test calls name their own.
Axes: T queries, S keys, Dq width of query and M of memory, A alignment width,
    D width of query and key, E of values, C model width, F width of a block's
    network, H heads, G groups, r reach, b buckets, w window, R queries in a
    block, f share of blocks used
"""

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path


@dataclass(frozen=True)
class Attention:
    """A row of the cheat sheet.

    Attributes:
        name: what it is called.
        chapter: the number of the chapter that builds it.
        formula: in TeX.
        operations: multiplications and additions of its products, for one text.
        parameters: how many numbers are learned.
        largest: how many numbers the largest tensor holds that a call makes,
            its output aside.
        use: when to take it.
        tanh: how many tanh are taken.
        at_most: whether operations and largest are bounds from above.
        sizes: axes that differ from the others' in the table of numbers.
    """

    name: str
    chapter: int
    formula: str
    operations: str
    parameters: str
    largest: str
    use: str
    tanh: str = "0"
    at_most: bool = False
    sizes: dict[str, float | int] = field(default_factory=dict)


def evaluate_cost(cost: str, sizes: dict[str, float | int]) -> float | int:
    """Return a cost such as "2 T S (D + E)" at the sizes of its axes.

    Raises:
        ValueError: if an axis has no size.
    """
    missing = set(re.findall("[A-Za-z]+", cost)) - {*sizes}
    if missing:
        raise ValueError(f"{cost!r} needs {sorted(missing)}, not {[*sizes]}")
    product = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", cost).replace("^", "**")
    return eval(product, {"__builtins__": {}}, dict(sizes))


# The parts of a row; the name of its file gives the chapter.
GIVEN = {part.name for part in fields(Attention)} - {"chapter"}
NEEDED = GIVEN - {"tanh", "at_most", "sizes"}


def read_rows(folder: Path) -> tuple[Attention, ...]:
    """Return the rows of every chapter's file, in the chapters' order.

    Raises:
        ValueError: if a row lacks a part or has one that is unknown; the
            message names the file and the row.
    """
    found = []
    for path in sorted(folder.glob("[0-9][0-9]_*.toml")):
        rows = tomllib.loads(path.read_text("utf8")).get("attention", [])
        for place, row in enumerate(rows, start=1):
            missing, unknown = NEEDED - {*row}, {*row} - GIVEN
            if missing or unknown:
                name = row.get("name", f"number {place}")
                raise ValueError(
                    f"{path.name}, row {name!r}: missing {sorted(missing)}, "
                    f"unknown {sorted(unknown)}"
                )
            found.append(Attention(chapter=int(path.name[:2]), **row))
    return tuple(found)


ATTENTIONS = read_rows(Path(__file__).with_name("cost_rows"))
