"""The benchmark of `flash_attention`: right first, then how fast.

Chapter: chapters/11_flash_attention
Source: none
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from attnbook.bench.implementations import NAMES, made, standard
from attnbook.bench.record import begun, write
from attnbook.bench.rows import Row
from attnbook.bench.timing import ceilings, copies, interleaved, middle
from attnbook.budget import share_of_budget

# Lengths at which FlexAttention is compiled.
FLEX = (4096,)


def bench(
    plan: Sequence[Row], device: str, out: Path, limit: float = float("inf")
) -> dict:
    """Measure the rows of a plan; return the record, written after each row.

    A record of the same machine and versions is gone on with.

    Args:
        plan: what to measure, the most important first.
        device: "cuda" or "cpu".
        out: where the record is written.
        limit: seconds after which no other row is begun.
    """
    start = time.monotonic()
    record = begun(device, out)
    record["wrong"], record["left"] = {}, []
    for row in dict.fromkeys(map(small, plan)):
        check(row, device, record)
    for name in ("correct", "wrong"):
        for title, told in record[name].items():
            print(name, title, told)
    if not record["wrong"]:
        record["ceilings"] = ceilings(device)
        known = {row["key"] for row in record["rows"]}
        for row in (row for row in plan if row.key not in known):
            if time.monotonic() - start > limit:
                record["left"].append(row.key)
                continue
            record["rows"].append(measure(row, device))
            write(record, out)
    write(record, out)
    return record


def small(row: Row) -> Row:
    """Return a row of the same kind, small enough for float64."""
    shape = {"N": min(row.N, 200), "tokens": 400, "columns": 4 * row.D}
    return replace(row, way="bwd", **shape)


def draw(row: Row, device: str, seed: int = 0) -> list[Tensor]:
    """Return query, key, value and upstream, normally distributed."""
    B, H, G, T, S, D = row.shape
    rng = torch.Generator(device).manual_seed(seed)
    sizes = (B, H, T, D), (B, G, S, D), (B, G, S, D), (B, H, T, D)
    kind = getattr(torch, row.dtype)
    return [
        torch.randn(x, generator=rng, device=device).to(kind) for x in sizes
    ]


def results(run: Callable, inputs: Sequence[Tensor], row: Row) -> list[Tensor]:
    """Return output and gradients."""
    *inputs, upstream = inputs
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = run(*inputs)
    return [output, *torch.autograd.grad(output, inputs, upstream)]


def check(row: Row, device: str, record: dict) -> None:
    """Note each one's share of the error budget; ours must not pass 1."""
    title = f"{row.case}, causal {row.causal}, {row.dtype}, D {row.D}"
    inputs = draw(row, device)
    exact = replace(row, dtype="float64")
    truth = results(
        standard(exact, device), [x.double() for x in inputs], exact
    )
    plain = results(standard(row, device), inputs, row)
    shares: dict[str, float | str] = {}
    for name in NAMES[:-1]:
        try:
            found = results(made(name, row, device), inputs, row)
            shares[name] = round(
                max(map(share_of_budget, found, plain, truth)), 2
            )
        except Exception as refusal:
            shares[name] = said(refusal)
    record["correct"][title] = shares
    if not (isinstance(shares["ours"], float) and shares["ours"] <= 1):
        record["wrong"][title] = shares["ours"]


def said(refusal: Exception) -> str:
    """Return the first line of what went wrong."""
    line = str(refusal).strip().partition("\n")[0]
    return f"{type(refusal).__name__}: {line[:100]}"


def measure(row: Row, device: str) -> dict:
    """Return a row's speeds; null where one does not run, and why."""
    first = draw(row, device)
    count = copies(first, device)
    sets = [first, *(draw(row, device, seed) for seed in range(1, count))]
    calls, refused = {}, {}
    for name in tried(row):
        try:
            calls[name] = prepared(made(name, row, device), sets, row)
            calls[name][0]()
        except Exception as refusal:
            calls.pop(name, None)
            refused[name] = said(refusal)
    taken = {k: middle(v) for k, v in interleaved(calls, device).items()}
    # `ours` is the teaching kernel until there is another.
    taken |= {"ours_teaching": taken["ours"]} if "ours" in taken else {}
    names = (*NAMES, "ours_teaching")
    print(row.key, {k: f"{1e3 * v[0]:.3g} ms" for k, v in taken.items()})
    return {
        "key": row.key,
        "pass": row.way,
        **{k: v for k, v in asdict(row).items() if k != "way"},
        "tflops": {
            n: row.flops / taken[n][0] / 1e12 if n in taken else None
            for n in names
        },
        "ms": {n: 1e3 * taken[n][0] if n in taken else None for n in names},
        "spread": {n: taken[n][1] if n in taken else None for n in names},
        "refused": refused,
    }


def tried(row: Row) -> tuple[str, ...]:
    """Return who is measured: FlexAttention, slow to compile, now and then."""
    some = row.case != "plain" or row.N in FLEX or row.dtype == "float32"
    return NAMES if some else tuple(n for n in NAMES if n != "flex")


def prepared(run: Callable, sets: list, row: Row) -> list[Callable]:
    """Return a call for each set of inputs: the pass that the row asks for."""
    if row.way == "fwd":
        return [lambda given=x[:3]: run(*given) for x in sets]

    def back(inputs: Sequence[Tensor]) -> Callable:
        *given, upstream = inputs
        given = [x.detach().requires_grad_() for x in given]
        output = run(*given)
        return lambda: torch.autograd.grad(
            output, given, upstream, retain_graph=True
        )

    return [back(x) for x in sets]
