"""What training says about mistakes in Bahdanau's and Luong's decoders.

Each decoder is trained like the right one of its kind, on the same sentences, for as
many epochs, with three seeds.

Axes: B batch, T target steps, S source symbols, E value width, N width of the state,
    M memory width
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.recurrent import (
    AdditiveAttention,
    DotScore,
    GeneralScore,
    GlobalAttention,
    MonotonicAttention,
    context,
    dot_scores,
    position_offsets,
)
from attnbook.data import Splits, grammar
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import (
    BahdanauDecoder,
    Encoder,
    EncoderDecoder,
    LuongDecoder,
    run_recurrent,
)
from attnbook.training.loop import Recipe, Trainer
from attnbook.training.metrics import alignment_error_rate
from attnbook.training.tasks import Task, predict_links
from workshop.experiments.record import get_device, recorded, sweep

SEEDS, EPOCHS, TRAINED, HELD_OUT = (0, 1, 2), 6, 6000, 200


class DecoderVariant(BahdanauDecoder):
    """A decoder with one hook for each thing that a mistake can change."""

    def attend(self, scores: Tensor, memory) -> tuple[Tensor, Tensor]:
        """Return context vectors (B, 1, E) and weights (B, 1, S)."""
        return context(scores, memory.states, memory.lengths)

    def pass_state(self, state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the state that the recurrent step starts from."""
        return tuple(state)

    def _run_step(self, word, state, keys, memory):
        scores = self.attention(state[0][:, None], keys)
        vectors, weights = self.attend(scores, memory)
        output, state = run_recurrent(
            self.recurrent, torch.cat([word, vectors], dim=-1), self.pass_state(state)
        )
        return output, vectors, weights, state


class WrongAxisDecoder(DecoderVariant):
    """Softmax over the queries, of which a step has one."""

    def attend(self, scores, memory):
        """Return a sum of values, and weights that are all 1."""
        weights = scores.softmax(1) * memory.padding_mask()[:, None]
        return weights @ memory.states, weights


class UnmaskedDecoder(DecoderVariant):
    """Softmax over real and padded positions."""

    def attend(self, scores, memory):
        """Return the average over all positions."""
        weights = scores.softmax(-1)
        return weights @ memory.states, weights


class StatelessDecoder(DecoderVariant):
    """The recurrent step starts from zeros."""

    def pass_state(self, state):
        return tuple(torch.zeros_like(x) for x in state)


class ForwardStateDecoder(DecoderVariant):
    """The first state is made from the forward direction."""

    def start(self, memory):
        """Return the first state, and the keys, projected once."""
        forward = memory.last[:, : memory.last.shape[1] // 2]
        first = (torch.tanh(bridge(forward)) for bridge in self.bridges)
        return (*first, self.attention.key(memory.states))


class ReluAttention(AdditiveAttention):
    """Additive scores with ReLU in the place of tanh."""

    def forward(self, query, keys):
        """Return the scores of queries against keys already projected."""
        hidden = self.query(query)[:, :, None] + keys[:, None]
        return torch.relu(hidden) @ self.v


class ReluDecoder(DecoderVariant):
    """ReLU in the alignment model."""

    def __init__(self, symbols, embedding, hidden, memory, **sizes):
        super().__init__(symbols, embedding, hidden, memory, **sizes)
        self.attention.__class__ = ReluAttention  # same weights, other activation


DECODERS = {
    "right": DecoderVariant,
    "softmax over the wrong axis": WrongAxisDecoder,
    "padding not masked": UnmaskedDecoder,
    "state not passed on": StatelessDecoder,
    "backward state dropped": ForwardStateDecoder,
    "ReLU for tanh": ReluDecoder,
}


def draw_task() -> Task:
    """Return 6,000 sentences of 3 to 8 words, 200 to choose, 400 to test."""
    pairs = grammar.load_short(8)
    parts = (
        pairs[:TRAINED],
        pairs[TRAINED : TRAINED + HELD_OUT],
        pairs[TRAINED + HELD_OUT :],
    )
    return Task(Splits(*map(tuple, parts)))


def build_model(data: Task, decoder: type[nn.Module], seed: int) -> EncoderDecoder:
    """Return a new model of the size that chapter 2 trains."""
    with use_seed(seed):
        encoder = Encoder(len(data.sources), embedding=48, hidden=48)
        made = decoder(len(data.targets), 48, 96, 96, readout=48, alignment=48)
    return EncoderDecoder(encoder, made)


def measure_decoder(data: Task, model: EncoderDecoder, seed: int) -> dict:
    """Train a model; return its losses and its test scores."""
    trainer = Trainer(
        model.to(get_device()),
        data.encode(data.splits.train),
        data.encode(data.splits.valid),
        Recipe(EPOCHS, size=64, rate=6e-3, seed=seed),
    )
    history = trainer.run(progress=False)
    tested: Sequence = data.splits.test
    outputs = [data.targets.decode(f.ids) for f in data.generate(model, tested)]
    right = sum(o == p.target for o, p in zip(outputs, tested, strict=True))
    links = predict_links(data, model, tested)
    return {
        "valid_loss": [h["valid_loss"] for h in history],
        "sentences_right": right / len(tested),
        "alignment_error": alignment_error_rate(
            links, [p.sure for p in tested], [p.possible for p in tested]
        ),
    }


@recorded(seeds=SEEDS)
def decoder_mistakes() -> dict:
    """Record six decoders, five of them wrong, trained to the end.

    Each decoder is trained like the right one, on the same sentences, for as many
    epochs, with three seeds; the losses of every epoch and the test scores are
    recorded.

    Source: the mistakes are from the public threads that chapter 2 links.
    """
    data = draw_task()

    def measure(decoder: str, seed: int) -> dict:
        return measure_decoder(data, build_model(data, DECODERS[decoder], seed), seed)

    return {"runs": sweep(measure, decoder=DECODERS, seed=SEEDS)}


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


class Variant(NamedTuple):
    """A decoder, and the right one that it is compared with ("" if it is right)."""

    score: Callable[[], nn.Module]
    right: str = ""
    attention: Callable[[nn.Module], nn.Module] = GlobalAttention
    decoder: type[LuongDecoder] = LuongDecoder
    feeding: bool = False


GENERAL, DOT = partial(GeneralScore, WIDTH, WIDTH), partial(DotScore, WIDTH, WIDTH)
RIGHT, FED, NEAR = "general, right", "input feeding, right", "window, right"
VARIANTS = {
    RIGHT: Variant(GENERAL),
    "padding not masked": Variant(GENERAL, RIGHT, UnmaskedAttention),
    "softmax over the queries": Variant(GENERAL, RIGHT, SoftmaxOverQueries),
    "reshaped, not transposed": Variant(partial(ReshapedScore, WIDTH, WIDTH), RIGHT),
    "dot, right": Variant(DOT),
    "half of the columns": Variant(
        partial(HalfColumnsScore, WIDTH, WIDTH), "dot, right"
    ),
    FED: Variant(GENERAL, feeding=True),
    "not fed in use": Variant(GENERAL, FED, decoder=WithoutInputFeeding, feeding=True),
    NEAR: Variant(GENERAL, attention=partial(MonotonicAttention, reach=REACH)),
    "window without its right end": Variant(
        GENERAL, NEAR, partial(HalfOpenWindow, reach=REACH)
    ),
    "window beyond the sentence": Variant(
        GENERAL, NEAR, partial(UnboundedWindow, reach=REACH)
    ),
}


def build_luong(data: Task, variant: Variant, seed: int) -> EncoderDecoder:
    """Return a new model of the size of chapter 2's mistakes."""
    with use_seed(seed):
        encoder = Encoder(len(data.sources), WIDTH // 2, WIDTH // 2)
        decoder = variant.decoder(
            len(data.targets),
            WIDTH // 2,
            WIDTH,
            WIDTH,
            variant.attention(variant.score()),
            feeding=variant.feeding,
        )
    return EncoderDecoder(encoder, decoder)


@recorded(on_cpu=True, seeds=SEEDS)
def luong_mistakes() -> dict:
    """Record eleven decoders, seven of them wrong, trained to the end.

    Each decoder is trained like the right one of its kind, on the sentences of
    chapter 2's mistakes, for as many epochs, with three seeds.

    Source: the mistakes are from the public threads that chapter 3 links, or
        variants of them.
    """
    data = draw_task()

    def measure(decoder: str, seed: int) -> dict:
        variant = VARIANTS[decoder]
        found = measure_decoder(data, build_luong(data, variant, seed), seed)
        return {"right": variant.right} | found

    return {"runs": sweep(measure, decoder=VARIANTS, seed=SEEDS)}
