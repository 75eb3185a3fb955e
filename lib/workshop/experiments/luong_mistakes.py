"""What training says about seven mistakes in Luong's decoder.

Each decoder is trained like the right one of its kind, on the sentences of
chapter 2's mistakes, for as many epochs, with three seeds.

Source: the mistakes are from the public threads that chapter 3 links, or
    variants of them.
Axes: B batch, T queries, S keys, N width of the state, M memory width
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from attnbook.attention.local import (
    GlobalAttention,
    MonotonicAttention,
    position_offsets,
)
from attnbook.attention.luong import DotScore, GeneralScore, dot_scores
from attnbook.attention.masked_softmax import masked_softmax
from attnbook.models.encoder import Encoder
from attnbook.models.encoder_decoder import EncoderDecoder
from attnbook.models.luong_decoder import LuongDecoder
from attnbook.training.tasks import Task
from workshop.experiments.decoder_mistakes import (
    SEEDS,
    draw_task,
    measure_decoder,
)
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

WIDTH, REACH = 96, 2  # of states and memory; of a window


class UnmaskedAttention(GlobalAttention):
    """Softmax over real and padded positions."""

    def forward(self, query, keys, value, lengths, step=0):
        """Return the average over all positions."""
        weights = self.score(query, keys).softmax(-1)
        return weights @ value, weights


class SoftmaxOverQueries(GlobalAttention):
    """Softmax over the queries: all of them in training, one in use."""

    def compute_weights(self, scores, query, real, step):
        """Return weights that sum to 1 over the queries."""
        return scores.softmax(1) * real


class ReshapedScore(GeneralScore):
    """The keys are reshaped to (B, N, S) instead of transposed."""

    def forward(self, query, keys):
        """Return products of queries and scattered keys."""
        return query @ keys.reshape(len(keys), keys.shape[2], keys.shape[1])


class HalfColumnsScore(DotScore):
    """Only the first half of the columns is compared."""

    def forward(self, query, keys):
        """Return products of half vectors."""
        half = keys.shape[2] // 2
        return dot_scores(query[..., :half], keys[..., :half])


class HalfOpenWindow(MonotonicAttention):
    """A window without its right end, like a slice."""

    def compute_weights(self, scores, query, real, step):
        """Return the weights over a half-open window."""
        steps = torch.arange(step, step + query.shape[1])
        center = torch.minimum(steps, real.sum(-1) - 1).to(scores.dtype)
        offsets = position_offsets(center, scores.shape[2])
        window = (-self.reach <= offsets) & (offsets < self.reach)
        return masked_softmax(scores, window & real)


class UnboundedWindow(MonotonicAttention):
    """A window whose center does not stop at the last word."""

    def compute_weights(self, scores, query, real, step):
        """Return the weights over a window that may be empty."""
        steps = torch.arange(step, step + query.shape[1])
        center = steps.expand(len(scores), -1).to(scores.dtype)
        offsets = position_offsets(center, scores.shape[2])
        return masked_softmax(scores, (offsets.abs() <= self.reach) & real)


class WithoutInputFeeding(LuongDecoder):
    """Input feeding in training; in use, every step is fed zeros."""

    def step(self, previous, state, memory):
        """Return logits, state and weights of a step fed zeros."""
        *before, fed, now, keys = state
        state = (*before, torch.zeros_like(fed), now, keys)
        return super().step(previous, state, memory)


def general() -> GeneralScore:
    """Return a general score."""
    return GeneralScore(WIDTH, WIDTH)


@dataclass(frozen=True)
class Variant:
    """A decoder, and the right one that it is compared with.

    Attributes:
        attention: makes its attention.
        right: the name of the right decoder; "" if it is right itself.
        decoder: its class.
        feeding: whether it has input feeding.
    """

    attention: Callable[[], nn.Module]
    right: str = ""
    decoder: type[LuongDecoder] = LuongDecoder
    feeding: bool = False


def global_general() -> nn.Module:
    """Return global attention with a general score."""
    return GlobalAttention(general())


DECODERS = {
    "general, right": Variant(global_general),
    "padding not masked": Variant(
        lambda: UnmaskedAttention(general()), "general, right"
    ),
    "softmax over the queries": Variant(
        lambda: SoftmaxOverQueries(general()), "general, right"
    ),
    "reshaped, not transposed": Variant(
        lambda: GlobalAttention(ReshapedScore(WIDTH, WIDTH)), "general, right"
    ),
    "dot, right": Variant(lambda: GlobalAttention(DotScore(WIDTH, WIDTH))),
    "half of the columns": Variant(
        lambda: GlobalAttention(HalfColumnsScore(WIDTH, WIDTH)), "dot, right"
    ),
    "input feeding, right": Variant(global_general, feeding=True),
    "not fed in use": Variant(
        global_general,
        "input feeding, right",
        WithoutInputFeeding,
        feeding=True,
    ),
    "window, right": Variant(lambda: MonotonicAttention(general(), REACH)),
    "window without its right end": Variant(
        lambda: HalfOpenWindow(general(), REACH), "window, right"
    ),
    "window beyond the sentence": Variant(
        lambda: UnboundedWindow(general(), REACH), "window, right"
    ),
}


def build_model(data: Task, variant: Variant, seed: int) -> EncoderDecoder:
    """Return a new model of the size of chapter 2's mistakes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Encoder(len(data.sources), WIDTH // 2, WIDTH // 2)
        decoder = variant.decoder(
            len(data.targets),
            WIDTH // 2,
            WIDTH,
            WIDTH,
            variant.attention(),
            feeding=variant.feeding,
        )
    return EncoderDecoder(encoder, decoder)


@experiment(on_cpu=True)
@recorded(SEEDS)
def luong_mistakes() -> dict:
    """Record eleven decoders, seven of them wrong, trained to the end."""
    data = draw_task()
    rows = [
        {"decoder": name, "right": variant.right, "seed": seed}
        | measure_decoder(data, build_model(data, variant, seed), seed)
        for name, variant in DECODERS.items()
        for seed in SEEDS
    ]
    return {"runs": rows}
