"""Time and memory of attention and of layers, over the length.

Processor times of one thread (`CLOCK`) hardly depend on other processes.

Axes: B batch, H heads, T queries or positions, S keys, D width of a head,
    C model width
"""

import shutil
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.delta_rule import attend_delta_chunked, step_delta
from attnbook.attention.linear import attend_linear_chunked, step_linear
from attnbook.attention.multi_head import GroupedQueryAttention
from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.self_attention import causal_mask
from attnbook.attention.sparse import attend_block_sparse
from attnbook.flash import flash_attention
from attnbook.masks import materialize_mask, rules
from attnbook.masks.layouts import cover_rule
from attnbook.models.devices import use_seed
from attnbook.profiling.allocations import measure_peak_bytes
from attnbook.profiling.roofline import measure_copy_rate, measure_product_rate
from attnbook.profiling.timing import time_calls
from workshop.experiments.record import recorded

Calls = dict[str, Callable[[], object]]
Clock = Callable[[], float]


def make_forward_call(
    attention: Callable, inputs: Sequence[Tensor]
) -> Callable[[], Tensor]:
    return torch.no_grad()(lambda: attention(*inputs[:3]))


def make_training_call(
    attention: Callable, inputs: Sequence[Tensor]
) -> Callable[[], tuple]:
    """Return a call forwards and backwards; the last input is the upstream."""
    *leaves, upstream = inputs
    leaves = [x.clone().requires_grad_() for x in leaves]
    return lambda: torch.autograd.grad(attention(*leaves), leaves, upstream)


def summarize_times(
    calls: Calls, rounds: int, clock: Clock = time.perf_counter
) -> dict[str, dict[str, float]]:
    found = {}
    for name, taken in time_calls(calls, rounds, clock=clock).items():
        ms = 1000 * torch.tensor(taken, dtype=torch.float64)
        found[name] = {"middle": float(ms.quantile(0.5)), "least": float(ms.min())}
    return found


def measure_memory(calls: Calls) -> dict[str, int]:
    return {name: measure_peak_bytes(call) for name, call in calls.items()}


# Batch and length of a training step: one of them halved, or both changed.
BLOCK_STEPS = ((2, 2048), (1, 2048), (2, 1024), (4, 1024))
BLOCK_WIDTH, BLOCK_HEADS = 256, 8


class PlainBlock(nn.Module):
    """Attention and a feed-forward layer, each added to what came in."""

    def __init__(self, width: int, count: int):
        super().__init__()
        self.attention = GroupedQueryAttention(width, count, count, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        x = x + self.attention(x)
        return x + self.down(self.up(x).relu())


def make_training_step(B: int, length: int) -> Callable[[], object]:
    with use_seed(0):
        block = PlainBlock(BLOCK_WIDTH, BLOCK_HEADS)
        x, upstream = torch.randn(2, B, length, BLOCK_WIDTH)
    weights = [*block.parameters()]
    return lambda: torch.autograd.grad(block(x), weights, upstream)


ROUNDS = 7
H, D = 4, 64  # D is the width of a head in every run here
LENGTHS = (256, 512, 1024, 2048, 4096)
LAYER = (1, 12, 4096, 64)  # a layer of GPT-2 (small), at 4096 tokens


def draw_inputs(*shape: int) -> list[Tensor]:
    """Return query, key, value and an upstream gradient of one shape."""
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=rng) for _ in range(4)]


def measure_ceilings(rounds: int = 25) -> dict[str, float]:
    return {
        "float32": measure_product_rate(rounds=rounds),
        "copy": measure_copy_rate(rounds=rounds),
    }


def measure_steps(length: int) -> dict[str, dict]:
    """Return what each step takes alone, and all of them fused."""
    query, key, value, _ = draw_inputs(1, H, length, D)
    scores = query @ key.mT
    weights = scores.softmax(-1)
    square, output = torch.empty_like(scores), torch.empty_like(value)
    product = torch.matmul
    with torch.no_grad():
        return summarize_times(
            {
                "scale again": lambda: torch.mul(query, D**-0.5, out=output),
                "scores again": lambda: product(query, key.mT, out=square),
                "softmax again": lambda: torch.softmax(scores, -1, out=square),
                "values again": lambda: product(weights, value, out=output),
                "sdpa": lambda: F.scaled_dot_product_attention(query, key, value),
            },
            ROUNDS,
        )


@recorded(seeds=[0], lengths=LENGTHS, sizes={"H": H, "D": D})
def attention_cost() -> dict:
    """Record ceilings, steps, memory, and training with other sizes."""
    results: dict = {"before": measure_ceilings()}
    results["steps"] = {str(n): measure_steps(n) for n in LENGTHS}
    calls: Calls = {f"{B} x {n}": make_training_step(B, n) for B, n in BLOCK_STEPS}
    results["training"] = summarize_times(calls, 5)
    results["after"] = measure_ceilings()
    results["training, bytes"] = measure_memory(calls)
    given, sdpa = draw_inputs(*LAYER), F.scaled_dot_product_attention
    layer: Calls = {
        "attend": make_forward_call(attend, given),
        "sdpa": make_forward_call(sdpa, given),
        "attend, training": make_training_call(attend, given),
    }
    return results | {"layer": measure_memory(layer)}


B, MASK_HEADS, MASK_WINDOW = 1, 8, 256
MASK_LENGTHS = (512, 1024, 2048, 4096)


def list_windowed(length: int) -> dict[str, Callable[..., Tensor]]:
    """Return every implementation of a window, as functions of q, k and v.

    FlexAttention is compiled, which needs a C++ compiler; without one it is missing.
    """
    rule = rules.window(length, length, MASK_WINDOW)
    mask = materialize_mask(rule, length, length)
    made: dict[str, Callable[..., Tensor]] = {
        "full": lambda *qkv: attend(*qkv, mask),
        "sdpa": lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=mask),
        "blocks": lambda *qkv: attend_in_blocks(*qkv, mask),
        "window": lambda *qkv: attend_window(*qkv, MASK_WINDOW),
    }
    if shutil.which("c++") or shutil.which("g++"):
        visited = create_block_mask(rule, None, None, length, length, "cpu")
        flex = torch.compile(flex_attention, dynamic=False)
        made["flex"] = lambda *qkv: flex(*qkv, block_mask=visited)
    return made


def measure_masked(ways: dict[str, Callable[..., Tensor]], length: int) -> dict:
    inputs = draw_inputs(B, MASK_HEADS, length, D)
    calls: Calls = {n: make_forward_call(way, inputs) for n, way in ways.items()}
    return {"bytes": measure_memory(calls), "forward": summarize_times(calls, ROUNDS)}


@recorded(seeds=[0], threads=2, lengths=MASK_LENGTHS)
def mask_cost() -> dict:
    """Record all ways to compute a window over the length, and SDPA's causal option."""
    longest, sdpa = MASK_LENGTHS[-1], F.scaled_dot_product_attention
    mask = causal_mask(longest, longest)
    ways: dict[str, Callable[..., Tensor]] = {
        "sdpa": lambda *qkv: sdpa(*qkv, attn_mask=mask),
        "sdpa, is_causal": lambda *qkv: sdpa(*qkv, is_causal=True),
    }
    return {
        "causal": {str(longest): measure_masked(ways, longest)},
        "window": {str(n): measure_masked(list_windowed(n), n) for n in MASK_LENGTHS},
    }


TILED_ROUNDS = 3
CLOCK = time.process_time
TILED: dict[str, Callable[..., Tensor]] = {
    "standard": attend,
    "tiled": flash_attention,
    "sdpa": F.scaled_dot_product_attention,
}


def measure_tiled(length: int) -> dict[str, dict]:
    inputs = draw_inputs(B, MASK_HEADS, length, D)
    found: dict[str, dict] = {}
    for name, make in (("forward", make_forward_call), ("both", make_training_call)):
        calls: Calls = {n: make(attention, inputs) for n, attention in TILED.items()}
        found[name] = summarize_times(calls, TILED_ROUNDS, CLOCK)
        found[f"bytes, {name}"] = measure_memory(calls)
    return found


@recorded(seeds=[0])
def tiled_cost() -> dict:
    """Record standard, tiled and PyTorch's attention over the length."""
    return {str(n): measure_tiled(n) for n in MASK_LENGTHS}


EFFICIENT_HEADS, WINDOW, BLOCK = 2, 256, 128
EFFICIENT_LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
# At 16,384 positions the standard version would need 8 GiB.
LONGEST = {"standard": 4096}
DECODED = (1, 8)  # B and H of a decoding step
EFFICIENT_ROUNDS = 5
FEWER, LONG = 3, 8192  # FEWER rounds from length LONG
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def draw_normalized(batch: int, heads: int, length: int) -> list[Tensor]:
    """Return query, key, value and an upstream gradient; keys of length 1."""
    query, key, value, upstream = draw_inputs(batch, heads, length, D)
    return [query, F.normalize(key, dim=-1), value, upstream]


def list_efficient(length: int, heads: int) -> dict[str, Attention]:
    beta = torch.full((B, heads, length), 0.5)
    rule = rules.window(length, length, WINDOW)
    layout = cover_rule(rule, length, length, min(BLOCK, length))
    mask = causal_mask(length, length)
    made: dict[str, Attention] = {
        "standard": lambda *qkv: attend(*qkv, mask),
        "sdpa": lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
        "linear, chunked": lambda *qkv: attend_linear_chunked(*qkv).output,
        "delta, chunked": lambda *qkv: attend_delta_chunked(*qkv, beta).output,
        "window, blocks": lambda *qkv: attend_block_sparse(*qkv, layout, rule),
    }
    return {n: way for n, way in made.items() if length <= LONGEST.get(n, length)}


def measure_training(length: int) -> dict[str, dict]:
    inputs = draw_normalized(B, EFFICIENT_HEADS, length)
    ways = list_efficient(length, EFFICIENT_HEADS)
    calls: Calls = {n: make_training_call(way, inputs) for n, way in ways.items()}
    rounds = EFFICIENT_ROUNDS if length < LONG else FEWER
    return {
        "ms": summarize_times(calls, rounds, CLOCK),
        "bytes": measure_memory(calls),
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


@recorded(seeds=[0], clock=CLOCK.__name__)
def efficient_cost() -> dict:
    """Record training and decoding over the length.

    Training is one causal attention forwards and backwards; decoding is one new
    position after n others, whose keys and values, or whose memory, are there.
    """
    decoding = {}
    for n in EFFICIENT_LENGTHS:
        calls, kept = list_steps(n)
        with torch.no_grad():
            times = summarize_times(calls, EFFICIENT_ROUNDS, CLOCK)
        decoding[str(n)] = {"ms": times, "bytes": kept}
    training = {str(n): measure_training(n) for n in EFFICIENT_LENGTHS}
    return {"training": training, "decoding": decoding}
