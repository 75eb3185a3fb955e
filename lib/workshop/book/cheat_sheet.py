"""The cheat sheet: every attention of the book in one table.

Axes: those of `workshop.book.attentions`
"""

import re
from dataclasses import replace
from pathlib import Path

from attnbook.profiling.block import Block, count_cache_bytes
from workshop.book.attentions import ATTENTIONS, Attention, evaluate_cost

CHAPTERS = Path("chapters")
HEAD = """# Cheat sheet

Every attention of the book with its formula and cost, then
[mask conventions](#mask-conventions), [RoPE scalings](#rope-scalings) and the
[bytes of a KV cache](#bytes-of-a-kv-cache).

## Every attention

The letters are those of [Notation](notation.md): $T$ queries, $S$ keys, $D_q$
the width of a query and $M$ of the memory, in chapters 2 and 3, where keys are
computed from the memory and values are the memory; $A$ the hidden units of an
additive score; $D$ the width of query and key and $E$ of values, in one head;
$C$ the width of a model, divided into $H$ heads; $F$ that of a block's
feed-forward network; $G$ groups of heads that share keys and values; $r$ a
reach, $w$ a window, $R$ queries in a chunk, $f$ the share of blocks that a mask
uses, $b$ buckets of distances.

A cost is for one sequence. Operations are the multiplications and additions of
products, as PyTorch's `FlopCounterMode` counts them. Softmax, masks, biases and
rotations, which work on single entries, are not among them. A tanh is costly
and is counted separately. *Holds* is the largest tensor that a call makes, its
output aside. The formulas are tested: a test calls the library's code at odd
sizes and counts operations, parameters and tensors. A formula without a name is
that of a score; the softmax over $s$ of the scores gives the weights of the
values.

T5 itself does not divide its scores by $\\sqrt{D}$. The book's `attend` does,
also with T5's bias.

"""
SECTIONS = Path(__file__).with_name("cheat_sheet_sections.md")
MIDDLE = """
## Every attention at one size

{sizes}. In rows with one head, the head is as wide as the model.

"""
SIZES: dict[str, float] = {
    **{"T": 1024, "S": 1024, "C": 256, "M": 256, "Dq": 256, "A": 64, "G": 2},
    **{"w": 128, "r": 16, "R": 128, "f": 0.5, "b": 32, "F": 1024},
}
ONE, SEVERAL = {"H": 1, "D": 256, "E": 256}, {"H": 8, "D": 32, "E": 32}
# Llama 3 8B: C, H, G, D, hidden, gated, L, and the positions it was trained on.
CACHED, POSITIONS = Block(4096, 32, 8, 128, 14336, True, 32), 8192


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
    sizes = ", ".join(f"{format_cost(k)[:-1]} = {v:g}$" for k, v in named.items())
    return (
        HEAD
        + "\n".join(rows)
        + "\n"
        + MIDDLE.format(sizes=sizes)
        + "\n".join(counted)
        + "\n\n"
        + write_sections().rstrip("\n")
        + "\n"
    )


def write_sections(itemsize: int = 2) -> str:
    """Return the sections on masks, RoPE and the KV cache, with its example."""
    block, size = CACHED, count_cache_bytes(CACHED, 1, POSITIONS, itemsize)
    ungrouped = replace(block, G=block.H)
    all_heads = count_cache_bytes(ungrouped, 1, POSITIONS, itemsize)
    found = {
        **{"L": block.L, "G": block.G, "D": block.D, "H": block.H},
        **{"itemsize": itemsize, "S": f"{POSITIONS:,}", "bytes": f"{size:,}"},
        "position": f"{count_cache_bytes(block, 1, 1, itemsize):,}",
        **{"gib": f"{size / 2**30:.3g}", "all_gib": f"{all_heads / 2**30:.3g}"},
    }
    text = SECTIONS.read_text("utf8")
    for name, value in found.items():
        text = text.replace(f"{{{{{name}}}}}", str(value))
    return text


def format_cost(cost: str) -> str:
    """Return a cost as TeX, a formula a term: a line may end between them."""
    terms = re.split(r" \+ (?![^(]*\))", cost.replace("Dq", "D_q"))
    return " + ".join(f"${term}$" for term in terms)


def write_formulas(row: Attention) -> str:
    """Return a row of formulas."""
    bound = "at most " if row.at_most else ""
    parameters = "none" if row.parameters == "0" else format_cost(row.parameters)
    tanh = "" if row.tanh == "0" else f", {format_cost(row.tanh)} tanh"
    cells = (
        row.name,
        row.formula,
        f"{bound}{format_cost(row.operations)}{tanh}; holds {format_cost(row.largest)}",
        parameters,
        row.use,
        f"[{row.chapter}]({link_chapter(row.chapter)}.ipynb)",
    )
    return f"| {' | '.join(cells)} |"


def write_numbers(row: Attention) -> str:
    """Return a row of numbers."""
    sizes = choose_sizes(row)
    costs = row.operations, row.tanh, row.parameters, row.largest
    operations, tanh, parameters, largest = (evaluate_cost(c, sizes) for c in costs)
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
