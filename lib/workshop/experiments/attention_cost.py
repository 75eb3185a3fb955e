"""What attention takes on one core: each step, beside what was counted.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of a head, C model width
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.attention.grouped_query import grouped_query
from attnbook.attention.query_chunks import attend_in_query_chunks
from attnbook.attention.scaled_dot_product import attend
from attnbook.profiling.allocations import measure_peak_bytes
from attnbook.profiling.roofline import measure_copy_rate, measure_product_rate
from workshop.experiments.cost import Calls, make_training_call, summarize_times
from workshop.experiments.plain_block import STEPS, WIDTH, make_training_step
from workshop.experiments.record import CORES, recorded
from workshop.experiments.registry import experiment

THREADS, ROUNDS, ROWS = 1, 7, 128
H, D = 4, 64
LENGTHS = (256, 512, 1024, 2048, 4096)
LAYER = (1, 12, 4096, 64)  # a layer of GPT-2 (small), at 4096 tokens
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}
MODEL, HEADS = 512, (1, 2, 4, 8, 16, 32)
DECODED, GROUPS = (8, 32, 4096, 64), (32, 8, 1)


def draw_inputs(*shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return query, key, value and an upstream gradient of one shape."""
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=rng).to(dtype) for _ in range(4)]


def measure_ceilings(rounds: int = 25) -> dict[str, float]:
    """Return the rates of products and of a copy."""
    rates = {n: measure_product_rate(rounds=rounds, dtype=d) for n, d in DTYPES.items()}
    return rates | {"copy": measure_copy_rate(rounds=rounds)}


def measure_steps(length: int) -> dict[str, dict]:
    """Return what each step takes alone, and ways to do all of them.

    A step that makes a new tensor must be given memory by the system, page by
    page; "again" is the step into memory that it has had before.
    """
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
                "scale": lambda: query * D**-0.5,
                "scores": lambda: query @ key.mT,
                "softmax": lambda: scores.softmax(-1),
                "values": lambda: weights @ value,
                "attend": lambda: attend(query, key, value),
                "query chunks": lambda: attend_in_query_chunks(query, key, value, ROWS),
                "sdpa": lambda: F.scaled_dot_product_attention(query, key, value),
            },
            ROUNDS,
        )


def list_implementations(given: list[Tensor]) -> Calls:
    """Return `attend` and PyTorch's kernel, forward and backward."""
    return {
        "attend": make_training_call(attend, given),
        "sdpa": make_training_call(F.scaled_dot_product_attention, given),
    }


def measure_layer_memory() -> dict[str, int]:
    """Return the peak of one layer's attention, forwards and in training."""
    given = draw_inputs(*LAYER)
    sdpa = F.scaled_dot_product_attention
    with torch.no_grad():
        found = {
            "attend": measure_peak_bytes(lambda: attend(*given[:3])),
            "query chunks": measure_peak_bytes(
                lambda: attend_in_query_chunks(*given[:3], ROWS)
            ),
            "sdpa": measure_peak_bytes(lambda: sdpa(*given[:3])),
        }
    return found | {
        f"{name}, training": measure_peak_bytes(call)
        for name, call in list_implementations(given).items()
    }


def measure_precisions(length: int) -> dict[str, dict]:
    """Return what the same attention takes in each precision."""
    made: Calls = {}
    sdpa = F.scaled_dot_product_attention
    for name, dtype in DTYPES.items():
        given = draw_inputs(1, H, length, D, dtype=dtype)[:3]
        made[f"attend, {name}"] = lambda given=given: attend(*given)
        made[f"sdpa, {name}"] = lambda given=given: sdpa(*given)
    with torch.no_grad():
        return summarize_times(made, ROUNDS)


def measure_heads(length: int) -> dict[str, dict]:
    """Return what H heads of width C / H take, at the same C."""
    made: Calls = {}
    for count in HEADS:
        given = draw_inputs(1, count, length, MODEL // count)[:3]
        made[str(count)] = lambda given=given: attend(*given)
    with torch.no_grad():
        return summarize_times(made, ROUNDS)


def measure_groups() -> dict[str, dict]:
    """Return what one new query takes against a cache, for G groups."""
    B, count, S, width = DECODED
    made: Calls = {}
    for G in GROUPS:
        query = draw_inputs(B, count, 1, width)[0]
        _, key, value, _ = draw_inputs(B, G, S, width)
        given = query, key, value
        made[str(G)] = lambda given=given: grouped_query(*given)
    with torch.no_grad():
        return summarize_times(made, ROUNDS)


@experiment(on_cpu=True)
@recorded(
    seeds=[0],
    threads=THREADS,
    cores=CORES,
    lengths=list(LENGTHS),
    rounds=ROUNDS,
    rows=ROWS,
    sizes={"H": H, "D": D, "layer": LAYER, "decoded": DECODED}
    | {"C": WIDTH, "split": MODEL},
)
def attention_cost() -> dict:
    """Record ceilings, steps, memory, and what each size changes."""
    results: dict = {"before": measure_ceilings()}
    results["steps"] = {str(n): measure_steps(n) for n in LENGTHS}
    results["both"] = {
        str(n): summarize_times(list_implementations(draw_inputs(1, H, n, D)), ROUNDS)
        for n in LENGTHS[:-1]
    }
    results["precisions"] = measure_precisions(1024)
    results["heads"] = measure_heads(1024)
    results["groups"] = measure_groups()
    calls = {f"{B} x {n}": make_training_step(B, n) for B, n in STEPS}
    results["training"] = summarize_times(calls, 5)
    results["after"] = measure_ceilings()
    results["training, bytes"] = {n: measure_peak_bytes(x) for n, x in calls.items()}
    return results | {"layer": measure_layer_memory()}
