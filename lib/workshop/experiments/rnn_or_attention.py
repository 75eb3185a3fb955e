"""Recurrence against attention: time and arithmetic over the length.

Source: the question is that of Vaswani et al. (2017), section 4 and table 1,
    https://arxiv.org/abs/1706.03762; the measurements are ours.
Axes: B batch, T positions, C width
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attnbook.models.sequence_layers import SEQUENCE_LAYERS
from attnbook.profiling.timing import time_calls
from workshop.experiments.record import CORES, recorded
from workshop.experiments.registry import experiment

LENGTHS, WIDTH, BATCH = (16, 32, 64, 128, 256, 512, 1024, 2048), 128, 8
KINDS, ROUNDS = ("rnn", "gru", "attention"), 7


def make_calls(model: nn.Module, length: int) -> dict[str, Callable[[], object]]:
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
@recorded(
    seeds=[],
    threads=CORES,
    cores=CORES,
    lengths=list(LENGTHS),
    width=WIDTH,
    batch=BATCH,
)
def rnn_or_attention() -> dict:
    """Record the time of both over the length, in turns, and their FLOPs."""
    models = {k: SEQUENCE_LAYERS[k](WIDTH) for k in KINDS}
    results: dict = {
        "counted": {
            kind: [count_flops(model, n) for n in LENGTHS]
            for kind, model in models.items()
        }
    }
    for length in LENGTHS:
        ready = {
            f"{kind} {way}": call
            for kind, model in models.items()
            for way, call in make_calls(model, length).items()
        }
        for name, taken in time_calls(ready, ROUNDS).items():
            results.setdefault(name, []).append(taken)
    return results
