"""What the exponentials of attention take on one core, beside its products.

Everything lies in the cache: one tile of queries against one tile of keys.

Axes: T queries, S keys, D width of a head
"""

import torch

from attnbook.profiling.exponentials import measure_exponential_rate
from attnbook.profiling.roofline import measure_product_rate
from workshop.experiments.cost import summarize_times
from workshop.experiments.record import CORES, recorded
from workshop.experiments.registry import experiment

THREADS, ROUNDS, TILE = 1, 50, 128
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


@experiment(on_cpu=True)
@recorded(
    seeds=[0],
    threads=THREADS,
    cores=CORES,
    rounds=ROUNDS,
    tile=TILE,
    widths=list(WIDTHS),
)
def exponential_cost() -> dict:
    """Record both rates, and the two parts of a tile for each width."""
    return {
        "rates": {
            "product": measure_product_rate(rounds=ROUNDS),
            "exponential": measure_exponential_rate(TILE, ROUNDS),
        },
        "widths": {str(D): measure_tile(D, ROUNDS) for D in WIDTHS},
    }
