"""What each kind of positions costs: parameters, and time a step.

Axes: B batch, T positions
"""

import os
import time

import torch

from attnbook.models.attention_only import METHODS, AttentionOnlyTransformer
from attnbook.models.encoder_decoder import count_parameters
from workshop.experiments.cores import hold_cores
from workshop.experiments.record import make_record, write_record
from workshop.experiments.registry import experiment
from workshop.experiments.rnn_or_attention import time_call

SYMBOLS, BATCH, LENGTHS, ROUNDS = 64, 8, (64, 512), 15


def make_training_step(model: AttentionOnlyTransformer, length: int):
    """Return a call: a batch forwards and backwards."""
    text = torch.randint(SYMBOLS, (BATCH, length))

    def call():
        model.zero_grad()
        model(text).square().mean().backward()

    return call


def time_steps(
    models: dict[str, AttentionOnlyTransformer], length: int, rounds: int
) -> dict:
    """Return seconds a step, all models in turns; a first round warms up."""
    calls = {
        name: make_training_step(model, length)
        for name, model in models.items()
    }
    took: dict[str, list[float]] = {name: [] for name in calls}
    for nth in range(rounds + 1):
        for name, call in calls.items():
            spent = time_call(call)
            if nth:
                took[name].append(spent)
    return took


@experiment(on_cpu=True)
def positions_cost() -> dict:
    """Record parameters and time a step for each method."""
    cores = os.cpu_count() or 1
    with hold_cores(cores):
        torch.set_num_threads(cores)
        wall, cpu = time.perf_counter(), time.process_time()
        models = {
            m: AttentionOnlyTransformer(SYMBOLS, m, LENGTHS[-1])
            for m in METHODS
        }
        results = {
            "parameters": {m: count_parameters(x) for m, x in models.items()}
        }
        for length in LENGTHS:
            results[str(length)] = time_steps(models, length, ROUNDS)
        made = make_record(
            "positions_cost",
            [],
            results,
            lengths=list(LENGTHS),
            batch=BATCH,
            threads=cores,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
        )
    write_record(made)
    return made
