"""The cheat sheet's tables: the main kinds of attention, their formulas and costs.

A cost is a formula of axes, written once, in the file of its chapter in
cost_rows/. The page shows it, and its test runs the library's code and counts.

Axes: T queries, S keys, Dq width of query and M of memory, A alignment width,
    D width of query and key, E of values, C model width, F width of a block's
    network, H heads, G groups, r reach, b buckets, w window, R queries in a
    block, f share of blocks used
"""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROWS = Path(__file__).with_name("cost_rows")
SIZES: dict[str, float | int] = {
    **{"T": 1024, "S": 1024, "C": 256, "M": 256, "Dq": 256, "A": 64, "G": 2},
    **{"w": 128, "r": 16, "R": 128, "f": 0.5, "b": 32, "F": 1024},
}
ONE, SEVERAL = {"H": 1, "D": 256, "E": 256}, {"H": 8, "D": 32, "E": 32}


@dataclass(frozen=True)
class Attention:
    """A row of the cheat sheet.

    Attributes:
        chapter: the file name of the chapter that builds it, without ending.
        operations: multiplications and additions of its products, for one text.
        parameters: how many numbers are learned.
        largest: how many numbers the largest tensor holds that a call makes,
            its output aside.
        use: when to take it.
        at_most: whether operations and largest are bounds from above.
        sizes: axes that differ from the others' in the table of numbers.
    """

    name: str
    chapter: str
    formula: str
    operations: str
    parameters: str
    largest: str
    use: str
    tanh: str = "0"
    at_most: bool = False
    sizes: dict[str, float | int] = field(default_factory=dict)


ATTENTIONS = [
    Attention(chapter=path.stem, **row)
    for path in sorted(ROWS.glob("*.toml"))
    for row in tomllib.loads(path.read_text("utf8"))["attention"]
]


def evaluate_cost(cost: str, sizes: dict[str, float | int]) -> float | int:
    """Return a cost such as "2 T S (D + E)" at the sizes of its axes."""
    product = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", cost).replace("^", "**")
    return eval(product, {"__builtins__": {}}, dict(sizes))


def format_cost(cost: str) -> str:
    """Return a cost as TeX, a formula a term: a line may end between them."""
    terms = re.split(r" \+ (?![^(]*\))", cost.replace("Dq", "D_q"))
    return " + ".join(f"${term}$" for term in terms)


def write_formula_table() -> str:
    rows = [
        "| attention | formula | cost | parameters | take it for | chapter |",
        "|---|---|---|---|---|---|",
    ]
    for row in ATTENTIONS:
        bound = "at most " if row.at_most else ""
        tanh = "" if row.tanh == "0" else f", {format_cost(row.tanh)} tanh"
        cells = (
            row.name,
            row.formula,
            f"{bound}{format_cost(row.operations)}{tanh}; "
            f"holds {format_cost(row.largest)}",
            "none" if row.parameters == "0" else format_cost(row.parameters),
            row.use,
            f"[{int(row.chapter[:2])}]({row.chapter}.ipynb)",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def write_number_table() -> str:
    named = {**SIZES, **SEVERAL}
    said = ", ".join(f"{format_cost(k)[:-1]} = {v:g}$" for k, v in named.items())
    rows = [
        f"{said}. In rows with one head, the head is as wide as the model.\n",
        "| attention | operations | tanh | parameters | holds |",
        "|---|---|---|---|---|",
    ]
    for row in ATTENTIONS:
        heads = f"{row.operations} {row.parameters} {row.largest}".split()
        sizes = SIZES | (SEVERAL if "H" in heads else ONE) | row.sizes
        bound = "≤ " if row.at_most else ""
        cells = (
            row.name,
            bound + format_number(evaluate_cost(row.operations, sizes)),
            format_number(evaluate_cost(row.tanh, sizes)),
            f"{evaluate_cost(row.parameters, sizes):,.0f}",
            bound + format_number(evaluate_cost(row.largest, sizes)),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def format_number(count: float | int) -> str:
    for size, word in (1e9, " billion"), (1e6, " million"), (1e3, " thousand"):
        if count >= size:
            return f"{count / size:.3g}{word}"
    return f"{count:.3g}"
