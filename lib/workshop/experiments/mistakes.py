"""What training says about mistakes in Bahdanau's decoder.

Axes: B batch, S source symbols, E value width
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnbook.attention.recurrent import AdditiveAttention, context
from attnbook.data import Splits, grammar
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import (
    BahdanauDecoder,
    Encoder,
    EncoderDecoder,
    run_recurrent,
)
from attnbook.training.loop import Recipe, Trainer
from attnbook.training.tasks import Task
from workshop.experiments.record import recorded, sweep
from workshop.experiments.scoring import score_alignment

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
        model,
        data.encode(data.splits.train),
        data.encode(data.splits.valid),
        Recipe(EPOCHS, size=64, rate=6e-3, seed=seed),
    )
    history = trainer.run(progress=False)
    tested: Sequence = data.splits.test
    outputs = [data.targets.decode(f.ids) for f in data.generate(model, tested)]
    right = sum(o == p.target for o, p in zip(outputs, tested, strict=True))
    return {
        "valid_loss": [h["valid_loss"] for h in history],
        "sentences_right": right / len(tested),
        **score_alignment(data, model, tested),
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
