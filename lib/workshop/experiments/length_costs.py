"""Time and memory of masked, tiled and efficient attention over the length.

Axes: B batch, H heads, T positions, D width of a head
"""

import shutil
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.delta_rule import (
    attend_delta_chunked,
    attend_delta_recurrent,
    step_delta,
)
from attnbook.attention.linear import attend_linear_chunked, step_linear
from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.sparse import attend_block_sparse
from attnbook.flash import flash_attention
from attnbook.masks import materialize_mask, rules
from attnbook.masks.layouts import cover_rule
from attnbook.profiling.allocations import measure_peak_bytes
from workshop.experiments.costs import (
    Calls,
    compare_directions,
    draw_inputs,
    make_forward_call,
    make_training_call,
    summarize_times,
)
from workshop.experiments.record import CORES, recorded

B, MASK_HEADS, D, MASK_WINDOW = 1, 8, 64, 256
MASK_LENGTHS = (512, 1024, 2048, 4096)
MASK_THREADS, MASK_ROUNDS, MASK_PAIRS = 2, 7, 31
RULES = {
    "causal": lambda length: rules.causal(length, length),
    "window": lambda length: rules.window(length, length, MASK_WINDOW),
}


def list_masked(kind: str, length: int) -> dict[str, Callable[..., Tensor]]:
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
        made["window"] = lambda *qkv: attend_window(*qkv, MASK_WINDOW)
    if shutil.which("c++") or shutil.which("g++"):
        visited = create_block_mask(rule, None, None, length, length, "cpu")
        flex = torch.compile(flex_attention, dynamic=False)
        made["flex"] = lambda *qkv: flex(*qkv, block_mask=visited)
    return made


def measure_masked(kind: str, length: int) -> dict[str, dict]:
    """Return time and memory of every implementation at one length."""
    inputs, found = draw_inputs(B, MASK_HEADS, length, D), list_masked(kind, length)
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
        made[direction] = summarize_times(some, MASK_ROUNDS)
    return made


def compare_with_sdpa(length: int) -> dict[str, dict]:
    """Return our window over SDPA with its mask, call by call in turn."""
    inputs, found = draw_inputs(B, MASK_HEADS, length, D), list_masked("window", length)
    return compare_directions(found["window"], found["sdpa"], inputs, MASK_PAIRS)


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=MASK_THREADS,
    cores=CORES,
    sizes={"B": B, "H": MASK_HEADS, "D": D, "window": MASK_WINDOW},
    lengths=list(MASK_LENGTHS),
    rounds=[MASK_ROUNDS, MASK_PAIRS],
)
def mask_cost() -> dict:
    """Record all ways over the length, and the window beside SDPA.

    FlexAttention is compiled here, which needs a C++ compiler, and on a CPU goes
    forward only; where there is no compiler its numbers are missing.
    """
    results: dict[str, dict] = {
        kind: {str(n): measure_masked(kind, n) for n in MASK_LENGTHS} for kind in RULES
    }
    return results | {"against sdpa": compare_with_sdpa(MASK_LENGTHS[-1])}


THREADS, TILED_ROUNDS, TILED_PAIRS = 1, 3, 5
CLOCK = time.process_time
TILED: dict[str, Callable[..., Tensor]] = {
    "standard": attend,
    "tiled": flash_attention,
    "sdpa": F.scaled_dot_product_attention,
}


def measure_tiled(length: int) -> dict[str, dict]:
    """Return time and memory of every implementation at one length."""
    inputs = draw_inputs(B, MASK_HEADS, length, D)
    made: dict[str, dict] = {}
    for name, direction in (
        ("forward", make_forward_call),
        ("both", make_training_call),
    ):
        calls = {n: direction(attention, inputs) for n, attention in TILED.items()}
        made[name] = summarize_times(calls, TILED_ROUNDS, CLOCK)
        made[f"bytes, {name}"] = {
            n: measure_peak_bytes(call) for n, call in calls.items()
        }
    reference = make_forward_call(attend, inputs)()
    made["far"] = {
        n: float((make_forward_call(attention, inputs)() - reference).abs().max())
        for n, attention in TILED.items()
    }
    return made


def compare_with_standard(length: int) -> dict[str, dict]:
    """Return tiled over standard attention's time, call by call in turn."""
    tiled, standard = (TILED[x] for x in ("tiled", "standard"))
    inputs = draw_inputs(B, MASK_HEADS, length, D)
    return compare_directions(tiled, standard, inputs, TILED_PAIRS, CLOCK)


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=THREADS,
    clock=CLOCK.__name__,
    sizes={"B": B, "H": MASK_HEADS, "D": D},
    lengths=list(MASK_LENGTHS),
    rounds=[TILED_ROUNDS, TILED_PAIRS],
)
def tiled_cost() -> dict:
    """Record all ways over the length, and the tiles beside the standard.

    Times are processor times of one thread, which other processes hardly change.
    """
    results: dict[str, dict] = {str(n): measure_tiled(n) for n in MASK_LENGTHS}
    return results | {"against standard": compare_with_standard(MASK_LENGTHS[-1])}


EFFICIENT_HEADS, WINDOW, BLOCK = 2, 256, 128
EFFICIENT_LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
# At 16,384 positions the standard version would need 8 GiB.
LONGEST = {"standard": 4096}
SWEPT = ("standard", "sdpa", "linear, chunked", "delta, chunked", "window, blocks")
DECODED = (1, 8)  # B and H of a decoding step
EFFICIENT_ROUNDS, EFFICIENT_PAIRS = 5, 5
FEWER, LONG = 3, 8192  # FEWER rounds from length LONG
COMPARED = {  # ours, theirs, length, heads
    "linear, chunked over sdpa": ("linear, chunked", "sdpa", 16384, EFFICIENT_HEADS),
    "window, blocks over sdpa": ("window, blocks", "window, sdpa", 4096, 8),
    "delta, chunked over recurrent": (
        "delta, chunked",
        "delta, recurrent",
        4096,
        EFFICIENT_HEADS,
    ),
}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def draw_normalized(batch: int, heads: int, length: int) -> list[Tensor]:
    """Return query, key, value and an upstream gradient; keys of length 1."""
    query, key, value, upstream = draw_inputs(batch, heads, length, D)
    return [query, F.normalize(key, dim=-1), value, upstream]


def list_efficient(length: int, heads: int) -> dict[str, Attention]:
    """Return every causal attention as a function of query, key and value.

    What can be made once for many calls is made here: masks, layouts and β.
    """
    beta = torch.full((B, heads, length), 0.5)
    rule = rules.window(length, length, WINDOW)
    mask, near = (
        materialize_mask(x, length, length)
        for x in (rules.causal(length, length), rule)
    )
    layout = cover_rule(rule, length, length, min(BLOCK, length))
    made: dict[str, Attention] = {
        "standard": lambda *qkv: attend(*qkv, mask),
        "sdpa": lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
        "linear, chunked": lambda *qkv: attend_linear_chunked(*qkv).output,
        "delta, chunked": lambda *qkv: attend_delta_chunked(*qkv, beta).output,
        "window, blocks": lambda *qkv: attend_block_sparse(*qkv, layout, rule),
        "window, sdpa": lambda *qkv: F.scaled_dot_product_attention(
            *qkv, attn_mask=near
        ),
        "delta, recurrent": lambda *qkv: attend_delta_recurrent(*qkv, beta).output,
    }
    return {
        name: attention
        for name, attention in made.items()
        if length <= LONGEST.get(name, length)
    }


def measure_training(length: int) -> dict[str, dict]:
    """Return time and memory of a training step of every implementation."""
    inputs = draw_normalized(B, EFFICIENT_HEADS, length)
    calls: Calls = {
        name: make_training_call(attention, inputs)
        for name, attention in list_efficient(length, EFFICIENT_HEADS).items()
        if name in SWEPT
    }
    rounds = EFFICIENT_ROUNDS if length < LONG else FEWER
    return {
        "ms": summarize_times(calls, rounds, CLOCK),
        "bytes": {n: measure_peak_bytes(call) for n, call in calls.items()},
    }


def list_steps(length: int) -> tuple[Calls, dict[str, int]]:
    """Return calls of one decoding step, and the bytes that each one keeps."""
    batch, heads = DECODED
    query, key, value, _ = draw_normalized(batch, heads, length)
    q, k, v = (x[..., -1, :].contiguous() for x in (query, key, value))
    last = query[..., -1:, :]
    near = [x[..., -WINDOW:, :].contiguous() for x in (key, value)]
    state, normalizer = (torch.ones(batch, heads, D, D), torch.ones_like(k))
    beta = torch.full((batch, heads), 0.5)
    calls: Calls = {
        "standard": lambda: attend(last, key, value),
        "sdpa": lambda: F.scaled_dot_product_attention(last, key, value),
        "window": lambda: attend(last, *near),
        "linear": lambda: step_linear(state, normalizer, q, k, v),
        "delta": lambda: step_delta(state, q, k, v, beta),
    }
    cache = 2 * key.nbytes
    return calls, {
        "standard": cache,
        "sdpa": cache,
        "window": sum(x.nbytes for x in near),
        "linear": state.nbytes + normalizer.nbytes,
        "delta": state.nbytes,
    }


def measure_decoding(length: int) -> dict[str, dict]:
    """Return the time of a decoding step, and the bytes that it keeps."""
    calls, kept = list_steps(length)
    with torch.no_grad():
        return {"ms": summarize_times(calls, EFFICIENT_ROUNDS, CLOCK), "bytes": kept}


def compare_pair(ours: str, theirs: str, length: int, heads: int) -> dict[str, dict]:
    """Return the time ratio of two implementations, and their memory."""
    found = list_efficient(length, heads)
    inputs = draw_normalized(B, heads, length)
    made: dict[str, dict] = compare_directions(
        found[ours], found[theirs], inputs, EFFICIENT_PAIRS, CLOCK
    )
    made["bytes, both"] = {
        name: measure_peak_bytes(make_training_call(found[name], inputs))
        for name in (ours, theirs)
    }
    return made


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=THREADS,
    sizes={"B": B, "H": EFFICIENT_HEADS, "D": D, "window": WINDOW, "block": BLOCK},
    decoded={"B": DECODED[0], "H": DECODED[1], "D": D},
    lengths=list(EFFICIENT_LENGTHS),
    clock=CLOCK.__name__,
    rounds={"up to 4096": EFFICIENT_ROUNDS, "longer": FEWER, "pairs": EFFICIENT_PAIRS},
    longest=LONGEST,
    compared={n: list(x) for n, x in COMPARED.items()},
)
def efficient_cost() -> dict:
    """Record training and decoding over the length, and three ratios.

    Training is one causal attention forwards and backwards; decoding is one new
    position after n others, whose keys and values, or whose memory, are there.
    Times are processor times of one thread, which other processes hardly change.
    """
    return {
        "training": {str(n): measure_training(n) for n in EFFICIENT_LENGTHS},
        "decoding": {str(n): measure_decoding(n) for n in EFFICIENT_LENGTHS},
        "ratios": {n: compare_pair(*x) for n, x in COMPARED.items()},
    }
