"""What training says about five mistakes in Bahdanau's decoder.

Each decoder is trained like the right one, on the same sentences, for as many
epochs, with three seeds; the losses of every epoch and the test scores are
recorded, with the test sentences in padded batches and one by one.

Source: the mistakes are from the public threads that chapter 2 links.
Axes: B batch, T target steps, S source symbols, E value width
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnbook.attention.additive import AdditiveAttention, context
from attnbook.data import Splits, grammar
from attnbook.models.bahdanau import BahdanauDecoder
from attnbook.models.encoder import Encoder
from attnbook.models.encoder_decoder import EncoderDecoder, run_recurrent
from attnbook.training.batching import make_batch
from attnbook.training.loop import Recipe, Trainer, compute_held_out_loss
from attnbook.training.metrics import alignment_error_rate
from attnbook.training.scoring import predict_links
from attnbook.training.tasks import Task
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

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
            self.recurrent,
            torch.cat([word, vectors], dim=-1),
            self.pass_state(state),
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
    pairs = grammar.sample_pairs(TRAINED + 600, seed=7, longest=8)
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


def train_and_score(data: Task, name: str, seed: int) -> dict:
    """Train one of the decoders; return its losses and its test scores."""
    model = build_model(data, DECODERS[name], seed)
    return {"decoder": name, "seed": seed} | measure_decoder(data, model, seed)


@experiment()
@recorded(seeds=SEEDS)
def decoder_mistakes() -> dict:
    """Record six decoders, five of them wrong, trained to the end."""
    data = draw_task()
    return {
        "runs": [
            train_and_score(data, name, seed) for name in DECODERS for seed in SEEDS
        ]
    }
