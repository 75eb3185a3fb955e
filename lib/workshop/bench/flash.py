"""The benchmark of `flash_attention`: right first, then how fast.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from attnbook.attention.error_budget import error_budget, share_of_budget
from attnbook.profiling.roofline import measure_copy_rate, measure_product_rate
from workshop.bench.accuracy import draw_inputs
from workshop.bench.comparison import (
    GpuLostError,
    Tools,
    format_refusal,
    measure_row,
)
from workshop.bench.implementations import NAMES, build_standard
from workshop.bench.record import open_record, write_record
from workshop.bench.rows import Row
from workshop.bench.timing import ROUNDS, make_replay, release_memory

TOOLS = {"cpu": Tools(), "cuda": Tools(replay=make_replay)}


def run_benchmark(
    plan: Sequence[Row],
    device: str,
    out: Path,
    limit: float | int = float("inf"),
    again: bool = False,
    tools: Tools | None = None,
) -> dict:
    """Measure the rows of a plan; return the record, written after each row.

    A record of the same setting is gone on with. A row that failed is recorded
    with its reason and not repeated, unless asked for.

    Args:
        plan: what to measure, the most important first.
        device: "cuda" or "cpu".
        out: where the record is written.
        limit: seconds after which no other row is begun.
        again: whether rows that failed are measured again.
        tools: how rows are measured; as on the device, unless given.

    Raises:
        GpuLostError: if the GPU answers no more; the same call in a new process
            goes on, without what lost it.
    """
    start, tools = time.monotonic(), tools or TOOLS[device]
    record = open_record(device, out)
    if again:
        record["rows"] = [r for r in record["rows"] if "failed" not in r]
        record["faults"], record["wrong"] = {}, {}
        record["correct"] = {}
    died = record.pop("running", None)
    if died:
        note_fault(record, *died, "the process died while it ran")
    write_record(record, out)
    with ignore_warnings(), open_side_stream(device), SavedRecord(record, out):
        for row in dict.fromkeys(map(shrink, plan)):
            if format_title(row) not in record["correct"]:
                check_errors(row, device, record, out, tools)
        measure_ceilings(plan, device, record)
        record["left"] = []
        known = {row["key"] for row in record["rows"]}
        for row in (row for row in plan if row.key not in known):
            if time.monotonic() - start > limit:
                record["left"].append(row.key)
                continue
            record["rows"].append(record_row(row, device, record, out, tools))
            write_record(record, out)
    for name in ("correct", "wrong"):
        for kind, shares in record[name].items():
            print(name, kind, shares)
    return record


class SavedRecord:
    """Writes a record when its block ends, however it ends.

    What a row was doing is forgotten if the row was interrupted on purpose: it
    is remembered for a process that dies, and then read by the next one.
    """

    def __init__(self, record: dict, out: Path):
        self.record, self.out = record, out

    def __enter__(self):
        return self.record

    def __exit__(self, kind, error, trace):
        self.record.pop("running", None)
        if isinstance(error, GpuLostError):
            note_fault(self.record, *error.args)
        write_record(self.record, self.out)


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Leave out the warnings of backends that refuse: the record says why."""
    with warnings.catch_warnings():
        for module in ("torch", "workshop.bench"):
            warnings.filterwarnings("ignore", module=module)
        yield


def open_side_stream(device: str):
    """Return a context with a stream of its own: CUDA graphs need one."""
    if device != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream())


def note_fault(record: dict, key: str, name: str | None, why: str) -> None:
    """Note that a row is not tried again so: without a name, not at all."""
    record["faults"].setdefault(key, {})[name or "row"] = why


def record_row(row: Row, device: str, record: dict, out: Path, tools: Tools) -> dict:
    """Return a row as it is recorded, measured unless it must not be."""
    faults = dict(record["faults"].get(row.key, {}))
    wrong = record["wrong"].get(format_title(row))
    if wrong is not None:
        faults["row"] = f"not measured, because ours is wrong: {wrong}"

    note = make_note_writer(row.key, record, out)
    note(None)
    try:
        found = measure_row(row, device, tools, faults, note)
    except GpuLostError as error:
        raise GpuLostError(row.key, *error.args) from None
    del record["running"]
    return found


def make_note_writer(key: str, record: dict, out: Path) -> Callable[[str | None], None]:
    """Return what writes down which implementation is about to run."""

    def note(name: str | None) -> None:
        record["running"] = [key, name]
        write_record(record, out)

    return note


def measure_ceilings(plan: Sequence[Row], device: str, record: dict) -> None:
    """Measure what the machine does at best, in each precision of a plan."""
    megabytes, width = (256, 8192) if device == "cuda" else (1, 64)
    rates: dict[str, Callable] = {
        "copy_TB_per_s": partial(measure_copy_rate, megabytes, ROUNDS, device=device)
    }
    for dtype in dict.fromkeys(row.dtype for row in plan):
        rates[f"{dtype}_matmul_tflops"] = partial(
            measure_product_rate, width, ROUNDS, getattr(torch, dtype), device
        )
    for name, rate in rates.items():
        if record["ceilings"].get(name) is None:
            try:
                record["ceilings"][name] = rate() / 1e12
            except torch.OutOfMemoryError:
                record["ceilings"][name] = None
            release_memory()


def shrink(row: Row) -> Row:
    """Return a row of the same kind, small enough for float64.

    Both passes are checked, except for decoding, which has only one.
    """
    shape = {"N": min(row.N, 200), "tokens": 400, "columns": 4 * row.D}
    direction = "fwd" if row.case == "decoding" else "bwd"
    return replace(row, direction=direction, **shape)


def format_title(row: Row) -> str:
    """Return the kind of a row, of which one small one is checked."""
    return f"{row.case}, causal {row.causal}, {row.dtype}, D {row.D}"


def compute_results(run: Callable, inputs: Sequence[Tensor], row: Row) -> list[Tensor]:
    """Return the output and, of a row with a backward pass, gradients."""
    *inputs, upstream = inputs
    if row.direction == "fwd":
        return [run(*inputs)]
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = run(*inputs)
    return [output, *torch.autograd.grad(output, inputs, upstream)]


def check_errors(row: Row, device: str, record: dict, out: Path, tools: Tools) -> None:
    """Note each one's share of the error budget; ours must not pass 1.

    FlexAttention is compiled for each shape and so checked where it is timed.
    """
    name, note = (
        format_title(row),
        make_note_writer(format_title(row), record, out),
    )
    shares: dict[str, float | str] = dict(record["faults"].get(name, {}))
    tried = [n for n in NAMES if n != "flex" and n not in shares]
    try:
        inputs = draw_inputs(row, device)
        # All of them add in float32, and no tile has fewer than 16 keys.
        budget = error_budget(
            build_standard(replace(row, dtype="float64"), device),
            inputs[:3],
            inputs[3],
            accumulate=torch.promote_types(inputs[0].dtype, torch.float32),
            tiles=math.ceil(row.shape[4] / 16),
        )
    except Exception as error:
        shares |= dict.fromkeys(tried, format_refusal(error))
        tried = []
    for each in tried:
        note(each)
        try:
            found = compute_results(tools.make(each, row, device), inputs, row)
            some = max(map(share_of_budget, found, budget))
            shares[each] = round(some, 2)
        except Exception as refusal:
            shares[each] = format_refusal(refusal)
            if not tools.alive(device):
                raise GpuLostError(name, each, shares[each]) from None
    record.pop("running", None)
    record["correct"][name] = shares
    ours = shares.get("ours", shares.get("row"))
    if not (isinstance(ours, float) and ours <= 1):
        record["wrong"][name] = ours
    write_record(record, out)
