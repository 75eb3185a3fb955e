"""What masked attention costs over the length, by implementation.

FlexAttention is compiled here, which needs a C++ compiler, and on a CPU goes
forward only; where there is no compiler its numbers are missing.

Axes: B batch, H heads, T positions, D width of a head
"""

import shutil
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.scaled_dot_product import attend
from attnbook.masks import materialize_mask, rules
from attnbook.profiling.allocations import measure_peak_bytes
from workshop.experiments.cost import (
    compare_directions,
    make_forward_call,
    make_training_call,
    summarize_times,
)
from workshop.experiments.record import CORES, recorded
from workshop.experiments.registry import experiment

B, H, D, SIZE = 1, 8, 64, 256
LENGTHS = (512, 1024, 2048, 4096)
THREADS, ROUNDS, PAIRS = 2, 7, 31
RULES = {
    "causal": lambda length: rules.causal(length, length),
    "window": lambda length: rules.window(length, length, SIZE),
}


def draw_inputs(length: int) -> list[Tensor]:
    """Return query, key, value and an upstream gradient."""
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(B, H, length, D, generator=rng) for _ in range(4)]


def list_implementations(kind: str, length: int) -> dict[str, Callable[..., Tensor]]:
    """Return every implementation under a mask, as functions of q, k and v.

    What can be made once for many calls is made here: the mask, and the list of
    blocks that FlexAttention visits.
    """
    rule = RULES[kind](length)
    mask = materialize_mask(rule, length, length)
    made: dict[str, Callable[..., Tensor]] = {
        "full": lambda *qkv: attend(*qkv, mask),
        "sdpa": lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=mask),
        "blocks": lambda *qkv: attend_in_blocks(*qkv, mask),
    }
    if kind == "causal":
        made["sdpa, is_causal"] = lambda *qkv: F.scaled_dot_product_attention(
            *qkv, is_causal=True
        )
    else:
        made["window"] = lambda *qkv: attend_window(*qkv, SIZE)
    if shutil.which("c++") or shutil.which("g++"):
        visited = create_block_mask(rule, None, None, length, length, "cpu")
        flex = torch.compile(flex_attention, dynamic=False)
        made["flex"] = lambda *qkv: flex(*qkv, block_mask=visited)
    return made


def measure_implementations(kind: str, length: int) -> dict[str, dict]:
    """Return time and memory of every implementation at one length."""
    inputs, found = draw_inputs(length), list_implementations(kind, length)
    reference = make_forward_call(found["full"], inputs)()
    calls = {
        name: make_forward_call(attention, inputs) for name, attention in found.items()
    }
    far = {n: float((call() - reference).abs().max()) for n, call in calls.items()}
    made: dict[str, dict] = {"far": far, "forward": {}, "both": {}}
    made["bytes"] = {name: measure_peak_bytes(call) for name, call in calls.items()}
    trained = {
        n: make_training_call(w, inputs) for n, w in found.items() if n != "flex"
    }
    made["bytes, both"] = {
        name: measure_peak_bytes(call) for name, call in trained.items()
    }
    for direction, some in (("forward", calls), ("both", trained)):
        made[direction] = summarize_times(some, ROUNDS)
    return made


def compare_with_sdpa(length: int) -> dict[str, dict]:
    """Return our window over SDPA with its mask, call by call in turn."""
    inputs, found = draw_inputs(length), list_implementations("window", length)
    return compare_directions(found["window"], found["sdpa"], inputs, PAIRS)


@experiment(on_cpu=True)
@recorded(
    seeds=[0],
    threads=THREADS,
    cores=CORES,
    sizes={"B": B, "H": H, "D": D, "window": SIZE},
    lengths=list(LENGTHS),
    rounds=[ROUNDS, PAIRS],
)
def mask_cost() -> dict:
    """Record all ways over the length, and the window beside SDPA."""
    results: dict[str, dict] = {
        kind: {str(n): measure_implementations(kind, n) for n in LENGTHS}
        for kind in RULES
    }
    return results | {"against sdpa": compare_with_sdpa(LENGTHS[-1])}
