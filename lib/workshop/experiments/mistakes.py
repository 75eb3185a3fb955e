"""What training says about mistakes in Bahdanau's and Luong's decoders.

Each decoder is trained like the right one of its kind, on the same sentences, for as
many epochs, with three seeds.

Axes: B batch, T target steps, S source symbols, E value width, N width of the state,
    M memory width
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from attnbook.models.bahdanau import BahdanauDecoder
from attnbook.models.encoder import Encoder
from attnbook.models.encoder_decoder import EncoderDecoder, run_recurrent
from attnbook.models.luong_decoder import LuongDecoder
from attnbook.training.loop import Recipe, Trainer, compute_held_out_loss, make_batch
from attnbook.training.metrics import alignment_error_rate
from attnbook.training.tasks import Task, predict_links
from workshop.experiments.machine import get_device
from workshop.experiments.record import recorded, sweep

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
        """Return zeros."""
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Encoder(len(data.sources), embedding=48, hidden=48)
        made = decoder(len(data.targets), 48, 96, 96, readout=48, alignment=48)
    return EncoderDecoder(encoder, made)


@torch.no_grad()
def measure_predicted_share(model: nn.Module, data: Task, size: int) -> float:
    """Return the share of test symbols predicted, in batches of a size."""
    pairs = data.encode(data.splits.test)
    hits = count = 0
    for start in range(0, len(pairs), size):
        made = make_batch(pairs[start : start + size]).to(get_device())
        predicted = model(made.source, made.lengths, made.previous).logits.argmax(-1)
        real = made.target != 0
        hits += int((predicted == made.target)[real].sum())
        count += int(real.sum())
    return hits / count


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
    links = predict_links(data, model, tested)
    return {
        "valid_loss": [h["valid_loss"] for h in history],
        "test_loss": compute_held_out_loss(model, data.encode(tested)),
        "sentences_right": sum(
            o == p.target for o, p in zip(outputs, tested, strict=True)
        )
        / len(tested),
        "alignment_error": alignment_error_rate(
            links, [p.sure for p in tested], [p.possible for p in tested]
        ),
        "predicted_in_batches": measure_predicted_share(model, data, len(tested)),
        "predicted_one_by_one": measure_predicted_share(model, data, 1),
    }


@recorded(seeds=SEEDS)
def decoder_mistakes() -> dict:
    """Record six decoders, five of them wrong, trained to the end.

    Each decoder is trained like the right one, on the same sentences, for as many
    epochs, with three seeds; the losses of every epoch and the test scores are
    recorded, with the test sentences in padded batches and one by one.

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


VARIANTS = {
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
        global_general, "input feeding, right", WithoutInputFeeding, feeding=True
    ),
    "window, right": Variant(lambda: MonotonicAttention(general(), REACH)),
    "window without its right end": Variant(
        lambda: HalfOpenWindow(general(), REACH), "window, right"
    ),
    "window beyond the sentence": Variant(
        lambda: UnboundedWindow(general(), REACH), "window, right"
    ),
}


def build_luong(data: Task, variant: Variant, seed: int) -> EncoderDecoder:
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
