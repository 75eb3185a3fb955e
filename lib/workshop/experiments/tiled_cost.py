"""What tiles cost on a CPU: time and memory over the length.

Times are processor times of one thread, which other processes hardly change.

Axes: B batch, H heads, D width of a head
"""

import time
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import flash_attention
from attnbook.profiling.allocations import measure_peak_bytes
from workshop.experiments.cost import (
    compare_directions,
    make_forward_call,
    make_training_call,
    summarize_times,
)
from workshop.experiments.mask_cost import B, D, H, draw_inputs
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

LENGTHS = (512, 1024, 2048, 4096)
THREADS, ROUNDS, PAIRS = 1, 3, 5
CLOCK = time.process_time
IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "standard": attend,
    "tiled": flash_attention,
    "sdpa": F.scaled_dot_product_attention,
}


def measure_implementations(length: int) -> dict[str, dict]:
    """Return time and memory of every implementation at one length."""
    inputs = draw_inputs(length)
    made: dict[str, dict] = {}
    for name, direction in (
        ("forward", make_forward_call),
        ("both", make_training_call),
    ):
        calls = {
            n: direction(attention, inputs) for n, attention in IMPLEMENTATIONS.items()
        }
        made[name] = summarize_times(calls, ROUNDS, CLOCK)
        made[f"bytes, {name}"] = {
            n: measure_peak_bytes(call) for n, call in calls.items()
        }
    reference = make_forward_call(attend, inputs)()
    made["far"] = {
        n: float((make_forward_call(attention, inputs)() - reference).abs().max())
        for n, attention in IMPLEMENTATIONS.items()
    }
    return made


def compare_with_standard(length: int) -> dict[str, dict]:
    """Return tiled over standard attention's time, call by call in turn."""
    tiled, standard = (IMPLEMENTATIONS[x] for x in ("tiled", "standard"))
    inputs = draw_inputs(length)
    return compare_directions(tiled, standard, inputs, PAIRS, CLOCK)


@experiment(on_cpu=True)
@recorded(
    seeds=[0],
    threads=THREADS,
    clock=CLOCK.__name__,
    sizes={"B": B, "H": H, "D": D},
    lengths=list(LENGTHS),
    rounds=[ROUNDS, PAIRS],
)
def tiled_cost() -> dict:
    """Record all ways over the length, and the tiles beside the standard."""
    results: dict[str, dict] = {str(n): measure_implementations(n) for n in LENGTHS}
    return results | {"against standard": compare_with_standard(LENGTHS[-1])}
