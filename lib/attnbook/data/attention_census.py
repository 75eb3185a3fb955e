"""Which attention language models use, as `transformers` describes them.

The table is dated: it was read from one release of the package, whose version
and date `RELEASE` has.

Source: the configurations in `transformers`, Apache-2.0; the rules of each
    column are in `workshop.derive.attention_census`.
"""

from functools import cache

from attnbook.data import read_lines

RELEASE = "5.23.0"
NUMBERS = ("year", "layers")
FLAGS = ("sinks", "gate")


@cache
def load_census() -> tuple[dict, ...]:
    """Return a row for each model whose copyright is of 2025 or 2026.

    Returns:
        Dicts with `model` and `checkpoint`, names; `year`, of the copyright in
        the first line of its configuration; `layers`, those with attention or
        what replaces it; `kinds`, how many layers there are of each kind;
        `other_kinds`, a tuple of those that its files know beside; `window`, in
        keys; `heads` and `key_value_heads`; `latent`, the width of a compressed
        key-value cache (MLA); `selection`, how many keys or blocks of keys a
        learned selection keeps; `sinks`, whether the softmax has learned sinks;
        `gate`, whether its output is gated. Sizes are text, since those of
        layers may differ: "8/16". What a model does not have is "", () or False.
    """
    names, *rows = (
        line.split("\t")
        for line in read_lines(f"attention_census/transformers-{RELEASE}.tsv")
    )
    return tuple(_read_row(dict(zip(names, row, strict=True))) for row in rows)


def _read_row(row: dict[str, str]) -> dict:
    """Return a row with numbers, flags and a dict of kinds."""
    numbers = {x: int(row[x]) for x in NUMBERS}
    flags = {x: row[x] == "yes" for x in FLAGS}
    parts = (part.split(" ", 1) for part in row["kinds"].split(", "))
    kinds = {kind: int(count) for count, kind in parts}
    other = tuple(filter(None, row["other_kinds"].split(", ")))
    return {**row, **numbers, **flags, "kinds": kinds, "other_kinds": other}
