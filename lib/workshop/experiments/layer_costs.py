"""What whole layers take, beside PyTorch's or beside each other.

Axes: B batch, T positions or frames, N patches of a frame, C model width, H heads
"""

import time
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
from attnbook.models.attention_only import METHODS, AttentionOnlyTransformer
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.profiling.allocations import measure_peak_bytes
from attnbook.profiling.timing import time_calls
from workshop.experiments.costs import Calls, summarize_times
from workshop.experiments.record import CORES, recorded

CLOCK = time.process_time

POSITION_LENGTHS = (64, 512)
POSITION_SYMBOLS, POSITION_BATCH, POSITION_ROUNDS = 64, 8, 15


def make_position_step(model: AttentionOnlyTransformer, length: int):
    """Return a call: a batch forwards and backwards."""
    text = torch.randint(POSITION_SYMBOLS, (POSITION_BATCH, length))

    def call():
        model.zero_grad()
        model(text).square().mean().backward()

    return call


@recorded(
    on_cpu=True,
    seeds=[],
    threads=CORES,
    cores=CORES,
    lengths=list(POSITION_LENGTHS),
    batch=POSITION_BATCH,
)
def positions_cost() -> dict:
    """Record parameters and time a step for each method."""
    models = {
        m: AttentionOnlyTransformer(POSITION_SYMBOLS, m, POSITION_LENGTHS[-1])
        for m in METHODS
    }
    results: dict = {"parameters": {m: count_parameters(x) for m, x in models.items()}}
    for length in POSITION_LENGTHS:
        calls = {m: make_position_step(model, length) for m, model in models.items()}
        results[str(length)] = time_calls(calls, POSITION_ROUNDS)
    return results


CLIPS, CLIP_HEADS, CLIP_WIDTH, PATCHES = 1, 2, 64, 64
CLIP_LENGTHS = (1, 2, 4, 8, 16, 32)
CLIP_ROUNDS = 5


def build_layers() -> dict[str, nn.Module]:
    """Return both layers with the same width and number of heads."""
    with use_seed(0):
        return {
            "joint": JointAttention(CLIP_WIDTH, CLIP_HEADS),
            "factorized": nn.Sequential(
                SpaceAttention(CLIP_WIDTH, CLIP_HEADS),
                TimeAttention(CLIP_WIDTH, CLIP_HEADS),
            ),
        }


def make_clip_call(layer: nn.Module, frames: int) -> Callable[[], object]:
    """Return a call of a layer forwards and backwards."""
    rng = torch.Generator().manual_seed(0)
    x, upstream = torch.randn(2, CLIPS, frames, PATCHES, CLIP_WIDTH, generator=rng)
    leaf = x.requires_grad_()
    leaves = [leaf, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(leaf), leaves, upstream)


def measure_length(frames: int) -> dict:
    """Return time, memory and counted scores of both layers."""
    calls: Calls = {
        name: make_clip_call(layer, frames) for name, layer in build_layers().items()
    }
    return {
        "ms": summarize_times(calls, CLIP_ROUNDS, CLOCK),
        "bytes": {name: measure_peak_bytes(x) for name, x in calls.items()},
        "scores": {
            "joint": count_joint_scores(frames, PATCHES),
            "factorized": count_factorized_scores(frames, PATCHES),
        },
    }


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=1,
    sizes={"B": CLIPS, "H": CLIP_HEADS, "C": CLIP_WIDTH, "N": PATCHES},
    lengths=list(CLIP_LENGTHS),
    clock=CLOCK.__name__,
    rounds=CLIP_ROUNDS,
)
def space_time_cost() -> dict:
    """Record time and memory of both layers over the number of frames.

    One call is a layer forwards and backwards: joint attention, or attention over
    space and then over time, which has twice as many projections. Times are
    processor times of one thread.
    """
    return {str(frames): measure_length(frames) for frames in CLIP_LENGTHS}
