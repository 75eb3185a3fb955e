"""One row of the benchmark: every implementation, right first, then timed.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from workshop.bench.accuracy import draw_inputs, measure_error_share
from workshop.bench.implementations import MATRIX, NAMES, build, list_skipped
from workshop.bench.machine import read_clocks
from workshop.bench.rows import Row
from workshop.bench.timing import (
    ROUNDS,
    choose_repeats,
    compare_pairs,
    compute_median,
    count_copies,
    gpu_responds,
    release_memory,
    shuffle,
    time_in_turn,
)

# How many error budgets a result may take; more is not rounding, but wrong.
# A budget counts at most u for each rounding: to nearest. Tensor cores truncate
# what they add, which costs at most 2u. Because a budget grows with u, to first
# order, in proportion, a right result takes at most two of them.
# Source: Fasi, Higham, Mikaitis and Pranesh (2021), Numerical behavior of
#     NVIDIA tensor cores, PeerJ Computer Science 7:e330,
#     https://doi.org/10.7717/peerj-cs.330 (V100, T4 and A100).
WRONG = 2.0


class GpuLostError(Exception):
    """After this error nothing more can run on the GPU in this process."""


@dataclass(frozen=True)
class Tools:
    """How a row is measured; a test takes others that need no GPU.

    Attributes:
        make: returns an implementation, by its name.
        seconds: times calls.
        alive: tells whether the device still answers.
        judge: returns a result's share of the error budget.
        replay: makes one call of several short ones, or None to time them as
            they are.
        rounds: how often each implementation is timed.
    """

    make: Callable = build
    seconds: Callable = time_in_turn
    alive: Callable = gpu_responds
    judge: Callable = measure_error_share
    replay: Callable | None = None
    rounds: int = ROUNDS


@dataclass
class Entry:
    """What is timed of an implementation.

    Attributes:
        prepare: returns the calls.
        calls: kept from round to round; None where `prepare` makes them anew,
            because they hold a matrix of scores.
        each: how many times attention is computed in a call.
        times: calls a round.
        uncaptured: why short calls are not replayed from a CUDA graph.
    """

    prepare: Callable[[], list[Callable]]
    calls: list[Callable] | None = None
    each: int = 1
    times: int = 2
    uncaptured: str | None = None

    def capture(self, calls: list[Callable], replay: Callable) -> None:
        """Time one replay instead of the calls, if they can be captured."""
        try:
            self.calls, self.each = [replay(calls)], len(calls)
        except Exception as refusal:
            self.calls, self.uncaptured = calls, format_refusal(refusal)


def format_refusal(refusal: BaseException) -> str:
    """Return the first line of what went wrong."""
    line = str(refusal).strip().partition("\n")[0]
    if isinstance(refusal, torch.OutOfMemoryError | MemoryError):
        return f"out of memory: {line[:100]}"
    return f"{type(refusal).__name__}: {line[:100]}"


def measure_row(
    row: Row, device: str, tools: Tools, faults: dict, note: Callable
) -> dict:
    """Return a row's speeds; null where an implementation does not run.

    Args:
        row: what is measured.
        device: "cuda" or "cpu".
        tools: how.
        faults: by name, why an implementation is not tried again in this row.
        note: is told the name of an implementation before it runs first, and
            None when all have run.

    Raises:
        GpuLostError: with the name of the implementation that lost it, if
            known, and what it said.
    """
    refused = list_skipped(row) | {n: faults[n] for n in NAMES if n in faults}
    taken: dict[str, list[float]] = {}
    shares: dict[str, float] = {}
    graph: dict[str, bool] = {}
    try:
        if "row" in faults:
            raise RuntimeError(faults["row"])
        first = draw_inputs(row, device)
        count = count_copies(first, device)
        sets = [first, *(draw_inputs(row, device, i) for i in range(1, count))]
        names = [n for n in NAMES if n not in refused]
        entries = select_entries(row, device, tools, sets, names, refused, shares, note)
        graph = {n: not e.uncaptured for n, e in entries.items()}
        taken = time_rounds(entries, row, device, tools, refused)
        failed = None
    except GpuLostError:
        raise
    except Exception as error:
        failed = format_refusal(error)
        if not tools.alive(device):
            raise GpuLostError(None, failed) from None
    finally:
        # So that their memory is free.
        first = sets = entries = None  # type: ignore[assignment]
        release_memory()
    more = {
        "share": shares,
        "refused": refused,
        "graph": graph if row.short and tools.replay else {},
        "clocks": read_clocks(device),
    }
    failed = failed or refused.get("ours")
    found = summarize(row, taken) | more
    print(row.key, failed or "", format_times(found["ms"]), flush=True)
    return found | ({"failed": failed} if failed else {})


def select_entries(
    row: Row,
    device: str,
    tools: Tools,
    sets: list,
    names: Sequence[str],
    refused: dict,
    shares: dict,
    note: Callable,
) -> dict[str, Entry]:
    """Return the implementations that run this row, and run it right."""
    entries = {}
    for name in names:
        note(name)
        try:
            run = tools.make(name, row, device)
            holds = row.direction == "bwd" and name in MATRIX
            some = sets[:1] if holds else sets
            entry = Entry(lambda run=run, some=some: prepare_calls(run, some, row))
            calls = entry.prepare()
            found = calls[0]()
            share = tools.judge(row, device, sets[0], found)
            found = None
            if not share <= WRONG:
                raise ArithmeticError(
                    f"wrong by {share:.3g} error budgets; {WRONG:g} are allowed"
                )
            shares[name] = round(share, 2)
            if row.short and tools.replay:
                entry.capture(calls, tools.replay)
                if entry.uncaptured and not tools.alive(device):
                    raise RuntimeError(entry.uncaptured)
            elif not holds:
                entry.calls = calls
            once = tools.seconds(entry.calls or calls, 2, device)
            entry.times = choose_repeats(once)
            entries[name] = entry
        except Exception as refusal:
            refused[name] = format_refusal(refusal)
            if not tools.alive(device):
                raise GpuLostError(name, refused[name]) from None
        finally:
            # So that their memory is free.
            calls = found = entry = None  # type: ignore[assignment]
            if name in MATRIX or name in refused:
                release_memory()
    note(None)
    return entries


def time_rounds(
    entries: dict[str, Entry],
    row: Row,
    device: str,
    tools: Tools,
    refused: dict,
) -> dict[str, list[float]]:
    """Return each implementation's times, a round at a time, shuffled."""
    taken: dict[str, list[float]] = {name: [] for name in entries}
    for number in range(tools.rounds):
        for name in shuffle(taken, f"{row.key} {number}"):
            entry = entries[name]
            try:
                calls = entry.calls or warm_up(entry.prepare())
                took = tools.seconds(calls, entry.times, device) / entry.each
                taken[name].append(took)
            except Exception as refusal:
                refused[name] = format_refusal(refusal)
                del taken[name], entries[name]
                if not tools.alive(device):
                    raise GpuLostError(name, refused[name]) from None
            finally:
                # So that their memory is free.
                calls = entry = None  # type: ignore[assignment]
                if name in refused:
                    release_memory()
    return taken


def warm_up(calls: list[Callable]) -> list[Callable]:
    """Return the calls after one of them has run and its memory is there."""
    calls[0]()
    return calls


def summarize(row: Row, taken: dict[str, list[float]]) -> dict:
    """Return a row as it is recorded; null where nothing was timed."""
    middles = {name: compute_median(times) for name, times in taken.items()}
    names = (*NAMES, "ours_teaching")

    def each(value: Callable) -> dict:
        return {n: value(*middles[n]) if n in middles else None for n in names}

    more = {}
    if row.case == "decoding":
        # The memory limits it: this is compared with the rate of a copy.
        more["tb_per_s"] = each(lambda time, _: row.bytes / time / 1e12)
    ours = taken.get("ours")
    others = {n: times for n, times in taken.items() if n != "ours" and ours}
    return {
        "key": row.key,
        "pass": row.direction,
        **{k: v for k, v in asdict(row).items() if k != "direction"},
        "tflops": each(lambda time, _: row.flops / time / 1e12),
        "ms": each(lambda time, _: 1e3 * time),
        "spread": each(lambda _, spread: spread),
        "faster": {n: compare_pairs(ours, times) for n, times in others.items()},
        **more,
    }


def format_times(ms: dict[str, float | None]) -> str:
    """Return a row's times on one line."""
    return ", ".join(f"{n} {x:.3g} ms" for n, x in ms.items() if x is not None)


def prepare_calls(run: Callable, sets: list, row: Row) -> list[Callable]:
    """Return a call for each set of inputs: the pass that the row asks for."""
    if row.direction == "fwd":
        return [lambda given=x[:3]: run(*given) for x in sets]

    def back(inputs: Sequence[Tensor]) -> Callable:
        *given, upstream = inputs
        given = [x.detach().requires_grad_() for x in given]
        output = run(*given)
        return lambda: torch.autograd.grad(output, given, upstream, retain_graph=True)

    return [back(x) for x in sets]
