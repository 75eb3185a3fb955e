"""Recurrence against attention: time and arithmetic over the length.

Source: the question is that of Vaswani et al. (2017), section 4 and table 1,
    https://arxiv.org/abs/1706.03762; the measurements are ours.
Axes: B batch, T positions, C width
"""

import os
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attnbook.models.sequence_layers import SEQUENCE_LAYERS
from workshop.experiments.cores import hold_cores
from workshop.experiments.record import make_record, write_record
from workshop.experiments.registry import experiment

LENGTHS, WIDTH, BATCH = (16, 32, 64, 128, 256, 512, 1024, 2048), 128, 8
KINDS = ("rnn", "gru", "attention")


def time_call(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def make_calls(
    model: nn.Module, length: int
) -> dict[str, Callable[[], object]]:
    """Return a forward call, and one forwards and backwards."""
    x = torch.randn(BATCH, length, WIDTH)

    def forward():
        with torch.no_grad():
            return model(x)

    def both():
        model.zero_grad()
        model(x)[0].square().mean().backward()

    return {"forward": forward, "both": both}


def count_flops(model: nn.Module, length: int) -> int:
    """Return the FLOPs of a forward call that PyTorch's counter sees."""
    with FlopCounterMode(display=False) as counter:
        make_calls(model, length)["forward"]()
    return counter.get_total_flops()


@experiment(on_cpu=True)
def rnn_or_attention(rounds: int = 7) -> dict:
    """Record the time of both over the length, in turns, and their FLOPs."""
    cores = os.cpu_count() or 1
    with hold_cores(cores):
        torch.set_num_threads(cores)
        wall, cpu = time.perf_counter(), time.process_time()
        models = {k: SEQUENCE_LAYERS[k](WIDTH) for k in KINDS}
        results: dict = {"counted": {}}
        for kind, model in models.items():
            results["counted"][kind] = [count_flops(model, n) for n in LENGTHS]
            for way in ("forward", "both"):
                results[f"{kind} {way}"] = [[] for _ in LENGTHS]
        for i, length in enumerate(LENGTHS):
            ready = {k: make_calls(m, length) for k, m in models.items()}
            for nth in range(rounds + 1):  # the first warms up
                for kind, both_ways in ready.items():
                    for way, call in both_ways.items():
                        took = time_call(call)
                        if nth:
                            results[f"{kind} {way}"][i].append(took)
        made = make_record(
            "rnn_or_attention",
            [],
            results,
            lengths=list(LENGTHS),
            width=WIDTH,
            batch=BATCH,
            threads=cores,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
        )
    write_record(made)
    return made
