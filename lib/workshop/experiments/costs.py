"""What attention takes on one core, and what recorded timings share.

Axes: B batch, H heads, T queries, S keys, D width of a head, C model width
"""

import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.multi_head import GroupedQueryAttention
from attnbook.attention.scaled_dot_product import attend, attend_in_query_chunks
from attnbook.models.devices import use_seed
from attnbook.profiling.allocations import measure_peak_bytes
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


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=THREADS,
    cores=CORES,
    lengths=list(LENGTHS),
    rounds=ROUNDS,
    rows=ROWS,
    sizes={"H": H, "D": D, "layer": LAYER, "C": BLOCK_WIDTH},
)
def attention_cost() -> dict:
    """Record ceilings, steps, memory, and training with other sizes."""
    results: dict = {"before": measure_ceilings()}
    results["steps"] = {str(n): measure_steps(n) for n in LENGTHS}
    calls = {f"{B} x {n}": make_training_step(B, n) for B, n in BLOCK_STEPS}
    results["training"] = summarize_times(calls, 5)
    results["after"] = measure_ceilings()
    results["training, bytes"] = {n: measure_peak_bytes(x) for n, x in calls.items()}
    return results | {"layer": measure_layer_memory()}
