"""The cheat sheet: every attention of the book in one table.

Axes: those of `workshop.book.attentions`
"""

import re
from pathlib import Path

from workshop.book.attentions import ATTENTIONS, Attention, evaluate_cost

CHAPTERS = Path("chapters")
HEAD = """# Cheat sheet

Every attention of the book. The letters are those of [Notation](notation.md):
$T$ queries and $S$ keys; $D_q$ the width of a query and $M$ of the memory, in
chapters 2 and 3, where keys are made of the memory and values are the memory;
$A$ the width of the layer in an additive score; $D$ the width of query and key
and $E$ of values, in one head; $C$ the width of a model, cut into $H$ heads;
$F$ that of a block's network; $G$ groups of heads that share keys and values;
$r$ a reach, $w$ a window, $R$ queries in a block of rows, $f$ the share of
blocks that a mask uses, $b$ buckets of distances.

A cost is for one text. Operations are the multiplications and additions of
products, as PyTorch's `FlopCounterMode` counts them. Softmax, masks, biases and
rotations, which go entry by entry, are not among them; a tanh is dear, and is
counted by itself. *Holds* is the largest tensor that a call makes, its output
aside. The formulas are held to the library: a test calls the code at odd sizes
and counts operations, parameters and tensors. A formula without a name is that
of a score; the softmax over $s$ of the scores weighs the values.

"""
MIDDLE = """
## The same, at one size

{sizes}. Where a row has one head, that head is as wide as the model.

"""
SIZES: dict[str, float] = {
    **{"T": 1024, "S": 1024, "C": 256, "M": 256, "Dq": 256, "A": 64, "G": 2},
    **{"w": 128, "r": 16, "R": 128, "f": 0.5, "b": 32, "F": 1024},
}
ONE, SEVERAL = {"H": 1, "D": 256, "E": 256}, {"H": 8, "D": 32, "E": 32}


def write_cheat_sheet() -> str:
    """Return the page."""
    rows = [
        "| attention | formula | cost | parameters | take it for | chapter |",
        "|---|---|---|---|---|---|",
        *map(write_formulas, ATTENTIONS),
    ]
    counted = [
        "| attention | operations | tanh | parameters | holds |",
        "|---|---|---|---|---|",
        *map(write_numbers, ATTENTIONS),
    ]
    named = {**SIZES, **SEVERAL}
    sizes = ", ".join(
        f"{format_cost(k)[:-1]} = {v:g}$" for k, v in named.items()
    )
    return (
        HEAD
        + "\n".join(rows)
        + "\n"
        + MIDDLE.format(sizes=sizes)
        + "\n".join(counted)
        + "\n"
    )


def format_cost(cost: str) -> str:
    """Return a cost as TeX, a formula a term: a line may end between them."""
    terms = re.split(r" \+ (?![^(]*\))", cost.replace("Dq", "D_q"))
    return " + ".join(f"${term}$" for term in terms)


def write_formulas(row: Attention) -> str:
    """Return a row of formulas."""
    bound = "at most " if row.at_most else ""
    parameters = (
        "none" if row.parameters == "0" else format_cost(row.parameters)
    )
    tanh = "" if row.tanh == "0" else f", {format_cost(row.tanh)} tanh"
    cells = (
        row.name,
        row.formula,
        f"{bound}{format_cost(row.operations)}{tanh}; "
        f"holds {format_cost(row.largest)}",
        parameters,
        row.use,
        f"[{row.chapter}]({link_chapter(row.chapter)}.ipynb)",
    )
    return f"| {' | '.join(cells)} |"


def write_numbers(row: Attention) -> str:
    """Return a row of numbers."""
    sizes = choose_sizes(row)
    costs = row.operations, row.tanh, row.parameters, row.largest
    operations, tanh, parameters, largest = (
        evaluate_cost(c, sizes) for c in costs
    )
    bound = "≤ " if row.at_most else ""
    cells = (
        row.name,
        f"{bound}{format_number(operations)}",
        format_number(tanh),
        f"{parameters:,.0f}",
        f"{bound}{format_number(largest)}",
    )
    return f"| {' | '.join(cells)} |"


def choose_sizes(row: Attention) -> dict[str, float | int]:
    """Return the sizes for a row: of one head, or of several."""
    costs = f"{row.operations} {row.parameters} {row.largest}"
    heads = SEVERAL if "H" in costs.split() else ONE
    return {**SIZES, **heads, **row.sizes}


def format_number(count: float | int) -> str:
    """Return a large number with 3 digits and a word."""
    for size, word in (1e9, " billion"), (1e6, " million"), (1e3, " thousand"):
        if count >= size:
            return f"{count / size:.3g}{word}"
    return f"{count:.3g}"


def link_chapter(chapter: int) -> str:
    """Return the file name of a chapter, without its ending."""
    (path,) = CHAPTERS.glob(f"{chapter:02}_*.md")
    return path.stem
