"""What a score costs: time and memory of a call, and of a training step.

`python -m workshop.experiments.scores_cost NAME` computes one score once, in a
process of its own, and prints the memory that took.

Axes: B batch, T queries, S keys, D width of query and key, A alignment width
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from attnbook.attention.recurrent import (
    additive_scores,
    additive_scores_in_blocks,
    concat_scores,
    dot_scores,
    general_scores,
)
from attnbook.training.loop import Trainer, make_batch
from workshop.experiments.costs import summarize_times
from workshop.experiments.record import recorded
from workshop.experiments.runs import RUNS

# The sizes of a batch of sentences, and of a paragraph.
SIZES = {"sentence": (64, 20, 20, 128, 64), "page": (8, 128, 512, 256, 256)}
SCORES = ("dot", "general", "concat", "additive", "blocks")
ROUNDS, TRAINED_ROUNDS = 25, 21
STEPS = {
    "additive": "grammar_attention_0",
    **{
        name: f"grammar_luong_{name}_0"
        for name in (
            *("dot", "general", "concat", "location"),
            *("monotonic", "predictive", "feeding"),
        )
    },
}


def make_score_call(name: str, size: Sequence[int]) -> Callable:
    B, T, S, D, A = size
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(B, T, D, generator=rng)
    key = torch.randn(B, S, D, generator=rng)
    W = torch.randn(A, 2 * D, generator=rng) / (2 * D) ** 0.5
    v = torch.randn(A, generator=rng) / A**0.5
    square = torch.randn(D, D, generator=rng) / D**0.5
    W_query, W_key = W.split(D, dim=1)
    calls = {
        "dot": lambda: dot_scores(query, key),
        "general": lambda: general_scores(query, key, square),
        "concat": lambda: concat_scores(query, key, W, v),
        "additive": lambda: additive_scores(query, key, W_query, W_key, v),
        "blocks": lambda: additive_scores_in_blocks(query, key, W_query, W_key, v),
    }
    return calls[name]


def read_peak_memory() -> int:
    """Return the most memory this process has held so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_peak(name: str, size: Sequence[int]) -> dict[str, float]:
    """Return what one call adds to this process's peak, and its result's sum."""
    torch.set_num_threads(1)
    with torch.no_grad():
        make_score_call(name, (2, 3, 5, 7, 11))()
        call = make_score_call(name, size)
        before = read_peak_memory()
        total = float(call().double().abs().sum())
    return {"bytes": read_peak_memory() - before, "sum": total}


def measure_peak_in_process(name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "workshop.experiments.scores_cost", name]
    return json.loads(subprocess.check_output(command))


def make_training_step(name: str) -> Callable:
    run = replace(RUNS[STEPS[name]], ship=False)
    data = run.data()
    pairs = data.encode(p for p in data.splits.train if len(p.source) == 12)
    trainer = Trainer(run.model(), pairs[:64], pairs[:64], run.recipe)
    made = make_batch(pairs[:64])
    return lambda: trainer.step(made, 0.5)


@recorded(seeds=[0], sizes=SIZES)
def scores_cost() -> dict:
    """Record time and memory of the scores, and of steps of training."""
    results: dict = {"peak": {n: measure_peak_in_process(n) for n in SCORES}}
    with torch.no_grad():
        results["call"] = {
            label: summarize_times(
                {n: make_score_call(n, size) for n in SCORES}, ROUNDS
            )
            for label, size in SIZES.items()
        }
    steps = {name: make_training_step(name) for name in STEPS}
    return results | {"step": summarize_times(steps, TRAINED_ROUNDS)}


if __name__ == "__main__":
    print(json.dumps(measure_peak(sys.argv[1], SIZES["page"])))
