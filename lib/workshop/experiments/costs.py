"""What attention takes on one core, and what recorded timings share.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width of a
    head, C model width
"""

import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.multi_head import GroupedQueryAttention, grouped_query
from attnbook.attention.scaled_dot_product import attend, attend_in_query_chunks
from attnbook.models.devices import use_seed
from attnbook.profiling.allocations import measure_peak_bytes
from attnbook.profiling.exponentials import measure_exponential_rate
from attnbook.profiling.roofline import measure_copy_rate, measure_product_rate
from attnbook.profiling.timing import time_calls
from workshop.experiments.record import CORES, recorded

DRAWS = 2000  # of the bootstrap
Calls = dict[str, Callable[[], object]]
Clock = Callable[[], float]


def make_forward_call(
    attention: Callable, inputs: Sequence[Tensor]
) -> Callable[[], Tensor]:
    """Return a call of a function of query, key and value, no gradients."""

    def call() -> Tensor:
        with torch.no_grad():
            return attention(*inputs[:3])

    return call


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
    """Return quartiles and the least of each call's milliseconds."""
    quartiles = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    found = {}
    for name, taken in time_calls(calls, rounds, clock=clock).items():
        milliseconds = 1000 * torch.tensor(taken, dtype=torch.float64)
        low, middle, high = milliseconds.quantile(quartiles).tolist()
        found[name] = {"low": low, "middle": middle, "high": high}
        found[name]["least"] = float(milliseconds.min())
    return found


def compare_directions(
    ours: Callable,
    theirs: Callable,
    inputs: Sequence[Tensor],
    rounds: int,
    clock: Clock = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """Return the time ratio of two implementations, forward and of both passes."""
    return {
        name: compute_time_ratio(
            direction(ours, inputs), direction(theirs, inputs), rounds, clock
        )
        for name, direction in (
            ("forward", make_forward_call),
            ("both", make_training_call),
        )
    }


def compute_time_ratio(
    ours: Callable, theirs: Callable, rounds: int, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Return the middle ratio of the rounds, and its 95 % bootstrap interval.

    Both are timed in every round, so that what a round does to both cancels.
    """
    taken = time_calls({"ours": ours, "theirs": theirs}, rounds, clock=clock)
    times = {
        name: 1000 * torch.tensor(seconds, dtype=torch.float64)
        for name, seconds in taken.items()
    }
    ratios = times["ours"] / times["theirs"]
    rng = torch.Generator().manual_seed(0)
    rows = torch.randint(len(ratios), (DRAWS, len(ratios)), generator=rng)
    cuts = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = ratios[rows].median(dim=1).values.quantile(cuts).tolist()
    return {
        "ratio": float(ratios.median()),
        "low": low,
        "high": high,
        "ours_ms": float(times["ours"].median()),
        "theirs_ms": float(times["theirs"].median()),
    }


# Batch and length of a training step: one of them halved, or both changed.
BLOCK_STEPS = ((2, 2048), (1, 2048), (2, 1024), (4, 1024))
BLOCK_WIDTH, BLOCK_HEADS = 256, 8


class PlainBlock(nn.Module):
    """Attention and a feed-forward layer, each added to what came in.

    Source: the parts: Vaswani et al. (2017), sections 3.2.2 and 3.3,
        https://arxiv.org/abs/1706.03762; without norms, dropout and biases
    """

    def __init__(self, width: int, count: int):
        super().__init__()
        self.attention = GroupedQueryAttention(width, count, count, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Return the block's output."""
        x = x + self.attention(x)
        return x + self.down(self.up(x).relu())


def make_training_step(B: int, length: int) -> Callable[[], object]:
    """Return a step's way there and back through one block."""
    with use_seed(0):
        block = PlainBlock(BLOCK_WIDTH, BLOCK_HEADS)
        x, upstream = torch.randn(2, B, length, BLOCK_WIDTH)
    weights = [*block.parameters()]
    return lambda: torch.autograd.grad(block(x), weights, upstream)


THREADS, ROUNDS, ROWS = 1, 7, 128
H, D = 4, 64
LENGTHS = (256, 512, 1024, 2048, 4096)
LAYER = (1, 12, 4096, 64)  # a layer of GPT-2 (small), at 4096 tokens
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
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


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=THREADS,
    cores=CORES,
    lengths=list(LENGTHS),
    rounds=ROUNDS,
    rows=ROWS,
    sizes={"H": H, "D": D, "layer": LAYER, "decoded": DECODED}
    | {"C": BLOCK_WIDTH, "split": MODEL},
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
    calls = {f"{B} x {n}": make_training_step(B, n) for B, n in BLOCK_STEPS}
    results["training"] = summarize_times(calls, 5)
    results["after"] = measure_ceilings()
    results["training, bytes"] = {n: measure_peak_bytes(x) for n, x in calls.items()}
    return results | {"layer": measure_layer_memory()}


TILE_THREADS, TILE_ROUNDS, TILE = 1, 50, 128
WIDTHS = (16, 32, 64, 128, 256)


def measure_tile(width: int, rounds: int) -> dict[str, dict]:
    """Return what both products and the exponentials of a tile take."""
    rng = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, TILE, width, generator=rng)
    scores = query @ key.mT
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    square, output = torch.empty_like(scores), torch.empty_like(value)
    return summarize_times(
        {
            "scores": lambda: torch.matmul(query, key.mT, out=square),
            "values": lambda: torch.matmul(weights, value, out=output),
            "exponentials": lambda: torch.exp(scores, out=square),
        },
        rounds,
    )


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=TILE_THREADS,
    cores=CORES,
    rounds=TILE_ROUNDS,
    tile=TILE,
    widths=list(WIDTHS),
)
def exponential_cost() -> dict:
    """Record both rates, and the two parts of a tile for each width.

    Everything lies in the cache: one tile of queries against one tile of keys.
    """
    return {
        "rates": {
            "product": measure_product_rate(rounds=TILE_ROUNDS),
            "exponential": measure_exponential_rate(TILE, TILE_ROUNDS),
        },
        "widths": {str(D): measure_tile(D, TILE_ROUNDS) for D in WIDTHS},
    }
