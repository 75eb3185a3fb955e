"""What joint and factorized attention cost as a clip becomes longer.

One call is a layer forwards and backwards: joint attention, or attention over
space and then over time, which has twice as many projections. Times are
processor times of one thread.

Axes: B batch, T frames, N patches of a frame, C model width, H heads
"""

from collections.abc import Callable

import torch
from torch import nn

from attnbook.attention.space_time import (
    JointAttention,
    SpaceAttention,
    TimeAttention,
    count_factorized_scores,
    count_joint_scores,
)
from attnbook.models.devices import use_seed
from attnbook.profiling.allocations import measure_peak_bytes
from workshop.experiments.cost import Calls, summarize_times
from workshop.experiments.efficient_cost import CLOCK
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

B, H, C, PATCHES = 1, 2, 64, 64
LENGTHS = (1, 2, 4, 8, 16, 32)
ROUNDS = 5


def build_layers() -> dict[str, nn.Module]:
    """Return both layers with the same width and number of heads."""
    with use_seed(0):
        return {
            "joint": JointAttention(C, H),
            "factorized": nn.Sequential(SpaceAttention(C, H), TimeAttention(C, H)),
        }


def make_call(layer: nn.Module, frames: int) -> Callable[[], object]:
    """Return a call of a layer forwards and backwards."""
    rng = torch.Generator().manual_seed(0)
    x, upstream = torch.randn(2, B, frames, PATCHES, C, generator=rng)
    leaf = x.requires_grad_()
    leaves = [leaf, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(leaf), leaves, upstream)


def measure_length(frames: int) -> dict:
    """Return time, memory and counted scores of both layers."""
    calls: Calls = {
        name: make_call(layer, frames) for name, layer in build_layers().items()
    }
    return {
        "ms": summarize_times(calls, ROUNDS, CLOCK),
        "bytes": {name: measure_peak_bytes(x) for name, x in calls.items()},
        "scores": {
            "joint": count_joint_scores(frames, PATCHES),
            "factorized": count_factorized_scores(frames, PATCHES),
        },
    }


@experiment(on_cpu=True)
@recorded(
    seeds=[0],
    threads=1,
    sizes={"B": B, "H": H, "C": C, "N": PATCHES},
    lengths=list(LENGTHS),
    clock=CLOCK.__name__,
    rounds=ROUNDS,
)
def space_time_cost() -> dict:
    """Record time and memory of both layers over the number of frames."""
    return {str(frames): measure_length(frames) for frames in LENGTHS}
