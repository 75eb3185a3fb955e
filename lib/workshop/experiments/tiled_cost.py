"""What tiles cost on a CPU: time and memory over the length.

Axes: B batch, H heads, D width of a head
"""

import os
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import flash_attention
from attnbook.profiling.allocations import measure_peak_bytes
from workshop.experiments.cores import hold_cores
from workshop.experiments.mask_cost import B, D, H, both, drawn, forward
from workshop.experiments.multi_head_cost import paired, ratio
from workshop.experiments.record import make_record, write_record
from workshop.experiments.registry import experiment
from workshop.experiments.scores_cost import interleaved, quartiles

LENGTHS = (512, 1024, 2048, 4096)
THREADS, ROUNDS, PAIRS = 2, 5, 7
WAYS: dict[str, Callable[..., Tensor]] = {
    "standard": attend,
    "tiled": flash_attention,
    "sdpa": F.scaled_dot_product_attention,
}


def measured(length: int) -> dict[str, dict]:
    """Return time and memory of every way at one length."""
    inputs = drawn(length)
    made: dict[str, dict] = {}
    for name, direction in (("forward", forward), ("both", both)):
        calls = {n: direction(way, inputs) for n, way in WAYS.items()}
        taken = interleaved(calls, ROUNDS)
        made[name] = {n: quartiles(ms) for n, ms in taken.items()}
        made[f"bytes, {name}"] = {
            n: measure_peak_bytes(call) for n, call in calls.items()
        }
    law = forward(attend, inputs)()
    made["far"] = {
        n: float((forward(way, inputs)() - law).abs().max())
        for n, way in WAYS.items()
    }
    return made


def against_standard(length: int) -> dict[str, dict]:
    """Return the tiles' time over the standard way's, call by call in turn."""
    inputs = drawn(length)
    return {
        name: ratio(
            paired(
                direction(WAYS["tiled"], inputs),
                direction(WAYS["standard"], inputs),
                PAIRS,
            )
        )
        for name, direction in (("forward", forward), ("both", both))
    }


@experiment(on_cpu=True)
def tiled_cost() -> dict:
    """Record all ways over the length, and the tiles beside the standard."""
    torch.set_num_threads(THREADS)
    with hold_cores(os.cpu_count() or 1):
        wall, cpu = time.perf_counter(), time.process_time()
        results: dict[str, dict] = {str(n): measured(n) for n in LENGTHS}
        results["against standard"] = against_standard(LENGTHS[-1])
        made = make_record(
            "tiled_cost",
            [0],
            results,
            sizes={"B": B, "H": H, "D": D},
            lengths=list(LENGTHS),
            rounds=[ROUNDS, PAIRS],
            threads=THREADS,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
        )
    write_record(made)
    return made
