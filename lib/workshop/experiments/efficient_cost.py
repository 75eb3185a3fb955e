"""What efficient attention costs: time and memory over the length.

Training is one causal attention forwards and backwards; decoding is one new
position after n others, whose keys and values, or whose memory, are there.
Times are processor times of one thread, which other processes hardly change.

Axes: B batch, H heads, T positions, D width of a head
"""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.attention.block_sparse import attend_block_sparse
from attnbook.attention.delta_rule import (
    attend_delta_chunked,
    attend_delta_recurrent,
    step_delta,
)
from attnbook.attention.linear import attend_linear_chunked, step_linear
from attnbook.attention.scaled_dot_product import attend
from attnbook.masks import materialize_mask, rules
from attnbook.masks.layouts import cover_rule
from attnbook.profiling.allocations import measure_peak_bytes
from workshop.experiments.cost import (
    Calls,
    compare_directions,
    make_training_call,
    summarize_times,
)
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

B, H, D, WINDOW, BLOCK = 1, 2, 64, 256, 128
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
# At 16,384 positions the standard version would need 8 GiB.
LONGEST = {"standard": 4096}
SWEPT = (
    "standard",
    "sdpa",
    "linear, chunked",
    "delta, chunked",
    "window, blocks",
)
DECODED = (1, 8)  # B and H of a decoding step
THREADS, ROUNDS, FEWER, LONG = 1, 5, 3, 8192  # FEWER rounds from length LONG
PAIRS = 5
CLOCK = time.process_time
COMPARED = {  # ours, theirs, length, heads
    "linear, chunked over sdpa": ("linear, chunked", "sdpa", 16384, H),
    "window, blocks over sdpa": ("window, blocks", "window, sdpa", 4096, 8),
    "delta, chunked over recurrent": (
        "delta, chunked",
        "delta, recurrent",
        4096,
        H,
    ),
}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def draw_inputs(length: int, heads: int, batch: int = B) -> list[Tensor]:
    """Return query, key, value and an upstream gradient; keys of length 1."""
    rng = torch.Generator().manual_seed(0)
    query, key, value, upstream = (
        torch.randn(batch, heads, length, D, generator=rng) for _ in range(4)
    )
    return [query, F.normalize(key, dim=-1), value, upstream]


def list_implementations(length: int, heads: int) -> dict[str, Attention]:
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
    inputs = draw_inputs(length, H)
    calls: Calls = {
        name: make_training_call(attention, inputs)
        for name, attention in list_implementations(length, H).items()
        if name in SWEPT
    }
    rounds = ROUNDS if length < LONG else FEWER
    return {
        "ms": summarize_times(calls, rounds, CLOCK),
        "bytes": {n: measure_peak_bytes(call) for n, call in calls.items()},
    }


def list_steps(length: int) -> tuple[Calls, dict[str, int]]:
    """Return calls of one decoding step, and the bytes that each one keeps.

    Args:
        length: positions so far.
    """
    batch, heads = DECODED
    query, key, value, _ = draw_inputs(length, heads, batch)
    q, k, v = (x[..., -1, :].contiguous() for x in (query, key, value))
    last = query[..., -1:, :]
    near = [x[..., -WINDOW:, :].contiguous() for x in (key, value)]
    state, normalizer = torch.ones(batch, heads, D, D), torch.ones_like(k)
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
        return {"ms": summarize_times(calls, ROUNDS, CLOCK), "bytes": kept}


def compare_pair(ours: str, theirs: str, length: int, heads: int) -> dict[str, dict]:
    """Return the time ratio of two implementations, and their memory."""
    found = list_implementations(length, heads)
    inputs = draw_inputs(length, heads)
    made: dict[str, dict] = compare_directions(
        found[ours], found[theirs], inputs, PAIRS, CLOCK
    )
    made["bytes, both"] = {
        name: measure_peak_bytes(make_training_call(found[name], inputs))
        for name in (ours, theirs)
    }
    return made


@experiment(on_cpu=True)
@recorded(
    seeds=[0],
    threads=THREADS,
    sizes={"B": B, "H": H, "D": D, "window": WINDOW, "block": BLOCK},
    decoded={"B": DECODED[0], "H": DECODED[1], "D": D},
    lengths=list(LENGTHS),
    clock=CLOCK.__name__,
    rounds={"up to 4096": ROUNDS, "longer": FEWER, "pairs": PAIRS},
    longest=LONGEST,
    compared={n: list(x) for n, x in COMPARED.items()},
)
def efficient_cost() -> dict:
    """Record training and decoding over the length, and three ratios."""
    return {
        "training": {str(n): measure_training(n) for n in LENGTHS},
        "decoding": {str(n): measure_decoding(n) for n in LENGTHS},
        "ratios": {n: compare_pair(*x) for n, x in COMPARED.items()},
    }
