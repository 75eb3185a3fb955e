"""What whole layers take, beside PyTorch's or beside each other.

Axes: B batch, T positions or frames, N patches of a frame, C model width, H heads
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attnbook.attention.multi_head import MultiHeadAttention, merge_heads
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
from attnbook.models.from_pytorch import copy_attention
from attnbook.models.sequence_layers import SEQUENCE_LAYERS
from attnbook.profiling.allocations import measure_peak_bytes
from attnbook.profiling.timing import time_calls
from workshop.experiments.costs import Calls, compute_time_ratio, summarize_times
from workshop.experiments.record import CORES, recorded

# B, T, C, H: sentences as in chapters 2 and 3, paragraphs, a page of text.
MODULE_SIZES = {
    "sentence": (64, 20, 192, 4),
    "paragraph": (8, 128, 256, 8),
    "page": (2, 512, 256, 8),
}
MODULE_THREADS, PAIRS = 1, 101
CLOCK = time.process_time
CONTROL = "page, evaluation, with weights over the scores"


class OverwritingAttention(MultiHeadAttention):
    """Multi-head attention whose softmax writes the weights over the scores."""

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return output and weights, without mask, bias and gradients."""
        scores = self.scores(query, key)
        weights = torch.softmax(scores, dim=-1, out=scores)
        context = self.combine(weights, value)
        return self.output(merge_heads(context)), weights


def build_modules(
    width: int, heads: int, kind: type[MultiHeadAttention] = MultiHeadAttention
) -> tuple[nn.Module, nn.Module]:
    """Return the book's module and PyTorch's, with the same weights."""
    ours = kind(width, heads)
    theirs = nn.MultiheadAttention(width, heads, batch_first=True)
    copy_attention(ours, theirs)
    return ours, theirs


def make_module_call(
    module: nn.Module, x: Tensor, training: bool, need_weights: bool
) -> Callable[[], Tensor]:
    """Return self-attention to x as a call; in training, with its gradients."""
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    module.train(training)

    def forward(x: Tensor) -> Tensor:
        if isinstance(module, MultiHeadAttention):
            got = module(x, need_weights=need_weights)
        else:
            got = module(
                *(x, x, x), need_weights=need_weights, average_attn_weights=False
            )
        return got[0] if isinstance(got, tuple) else got

    def evaluate() -> Tensor:
        with torch.no_grad():
            return forward(x)

    def train() -> Tensor:
        module.zero_grad()
        output = forward(x.detach().requires_grad_())
        output.backward(upstream)
        return output

    return train if training else evaluate


def compare_modules(
    size: tuple[int, int, int, int],
    training: bool,
    need_weights: bool,
    kind: type[MultiHeadAttention] = MultiHeadAttention,
) -> dict[str, float]:
    """Return the ratio of the book's and PyTorch's time in one setting."""
    B, T, C, H = size
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, C, generator=rng)
    ours, theirs = (
        make_module_call(module, x, training, need_weights)
        for module in build_modules(C, H, kind)
    )
    return compute_time_ratio(ours, theirs, PAIRS, CLOCK)


@recorded(
    on_cpu=True,
    seeds=[0],
    threads=MODULE_THREADS,
    clock=CLOCK.__name__,
    sizes=MODULE_SIZES,
    pairs=PAIRS,
)
def multi_head_cost() -> dict:
    """Record training and evaluation, with and without weights, in pairs.

    One more row is the control in which our softmax, as PyTorch's module does,
    writes the weights over the scores.

    Times are processor times of one thread, which other processes hardly change.
    """
    results = {}
    for label, size in MODULE_SIZES.items():
        for training in (True, False):
            for need in (False, True):
                way = "training" if training else "evaluation"
                with_ = "with" if need else "without"
                name = f"{label}, {way}, {with_} weights"
                results[name] = compare_modules(size, training, need)
    results[CONTROL] = compare_modules(
        MODULE_SIZES["page"], False, True, OverwritingAttention
    )
    return results


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


SEQUENCE_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)
SEQUENCE_WIDTH, SEQUENCE_BATCH = 128, 8
SEQUENCE_KINDS, SEQUENCE_ROUNDS = ("rnn", "gru", "attention"), 7


def make_calls(model: nn.Module, length: int) -> dict[str, Callable[[], object]]:
    """Return a forward call, and one forwards and backwards."""
    x = torch.randn(SEQUENCE_BATCH, length, SEQUENCE_WIDTH)

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


@recorded(
    on_cpu=True,
    seeds=[],
    threads=CORES,
    cores=CORES,
    lengths=list(SEQUENCE_LENGTHS),
    width=SEQUENCE_WIDTH,
    batch=SEQUENCE_BATCH,
)
def rnn_or_attention() -> dict:
    """Record the time of both over the length, in turns, and their FLOPs.

    Source: the question is that of Vaswani et al. (2017), section 4 and table 1,
        https://arxiv.org/abs/1706.03762; the measurements are ours.
    """
    models = {k: SEQUENCE_LAYERS[k](SEQUENCE_WIDTH) for k in SEQUENCE_KINDS}
    results: dict = {
        "counted": {
            kind: [count_flops(model, n) for n in SEQUENCE_LENGTHS]
            for kind, model in models.items()
        }
    }
    for length in SEQUENCE_LENGTHS:
        ready = {
            f"{kind} {way}": call
            for kind, model in models.items()
            for way, call in make_calls(model, length).items()
        }
        for name, taken in time_calls(ready, SEQUENCE_ROUNDS).items():
            results.setdefault(name, []).append(taken)
    return results
