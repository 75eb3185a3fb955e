"""What each kind of positions costs: parameters, and time a step.

Axes: B batch, T positions
"""

import torch

from attnbook.models.attention_only import METHODS, AttentionOnlyTransformer
from attnbook.models.encoder_decoder import count_parameters
from attnbook.profiling.timing import time_calls
from workshop.experiments.record import CORES, recorded
from workshop.experiments.registry import experiment

SYMBOLS, BATCH, LENGTHS, ROUNDS = 64, 8, (64, 512), 15


def make_training_step(model: AttentionOnlyTransformer, length: int):
    """Return a call: a batch forwards and backwards."""
    text = torch.randint(SYMBOLS, (BATCH, length))

    def call():
        model.zero_grad()
        model(text).square().mean().backward()

    return call


@experiment(on_cpu=True)
@recorded(seeds=[], threads=CORES, cores=CORES, lengths=list(LENGTHS), batch=BATCH)
def positions_cost() -> dict:
    """Record parameters and time a step for each method."""
    models = {m: AttentionOnlyTransformer(SYMBOLS, m, LENGTHS[-1]) for m in METHODS}
    results: dict = {"parameters": {m: count_parameters(x) for m, x in models.items()}}
    for length in LENGTHS:
        calls = {m: make_training_step(model, length) for m, model in models.items()}
        results[str(length)] = time_calls(calls, ROUNDS)
    return results
