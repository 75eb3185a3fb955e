"""What training says about mistakes in Bahdanau's decoder.

Axes: B batch, S source symbols, E value width
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from attnbook.attention.recurrent import context
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


FAULTS = (
    *("right", "softmax over the wrong axis", "padding not masked"),
    *("state not passed on", "backward state dropped", "ReLU for tanh"),
)


class FaultyDecoder(BahdanauDecoder):
    """A decoder with one of FAULTS, and the weights of the right one."""

    def __init__(self, fault: str, *sizes: int, **more: int):
        super().__init__(*sizes, **more)
        self.fault = fault

    def start(self, memory):
        if self.fault != "backward state dropped":
            return super().start(memory)
        forward = memory.last[:, : memory.last.shape[1] // 2]
        first = (torch.tanh(bridge(forward)) for bridge in self.bridges)
        return (*first, self.attention.key(memory.states))

    def _run_step(self, word, state, keys, memory):
        query = state[0][:, None]
        scores = self.attention(query, keys)
        if self.fault == "ReLU for tanh":
            hidden = self.attention.query(query)[:, :, None] + keys[:, None]
            scores = hidden.relu() @ self.attention.v
        vectors, weights = context(scores, memory.states, memory.lengths)
        if self.fault == "padding not masked":
            weights = scores.softmax(-1)
            vectors = weights @ memory.states
        if self.fault == "softmax over the wrong axis":  # a step has one query
            weights = scores.softmax(1) * memory.padding_mask()[:, None]
            vectors = weights @ memory.states
        if self.fault == "state not passed on":
            state = [torch.zeros_like(x) for x in state]
        given = torch.cat([word, vectors], dim=-1)
        output, state = run_recurrent(self.recurrent, given, tuple(state))
        return output, vectors, weights, state


DECODERS = {fault: partial(FaultyDecoder, fault) for fault in FAULTS}


def draw_task() -> Task:
    """Return 6,000 sentences of 3 to 8 words, 200 to choose, 400 to test."""
    pairs, end = grammar.load_short(8), TRAINED + HELD_OUT
    parts = pairs[:TRAINED], pairs[TRAINED:end], pairs[end:]
    return Task(Splits(*map(tuple, parts)))


def build_model(data: Task, decoder: Callable, seed: int) -> EncoderDecoder:
    """Return a new model of the size that chapter 2 trains."""
    with use_seed(seed):
        encoder = Encoder(len(data.sources), embedding=48, hidden=48)
        made = decoder(len(data.targets), 48, 96, 96, readout=48, alignment=48)
    return EncoderDecoder(encoder, made)


@recorded(seeds=SEEDS)
def decoder_mistakes() -> dict:
    """Record six decoders, five of them wrong, trained to the end.

    Source: the mistakes are from the public threads that chapter 2 links.
    """
    data = draw_task()

    tested: Sequence = data.splits.test

    def measure(decoder: str, seed: int) -> dict:
        model = build_model(data, DECODERS[decoder], seed)
        recipe = Recipe(EPOCHS, size=64, rate=6e-3, seed=seed)
        pairs = map(data.encode, (data.splits.train, data.splits.valid))
        history = Trainer(model, *pairs, recipe).run(progress=False)
        outputs = [data.targets.decode(f.ids) for f in data.generate(model, tested)]
        right = sum(o == p.target for o, p in zip(outputs, tested, strict=True))
        return {
            "valid_loss": [h["valid_loss"] for h in history],
            "sentences_right": right / len(tested),
            **score_alignment(data, model, tested),
        }

    return {"runs": sweep(measure, decoder=DECODERS, seed=SEEDS)}
