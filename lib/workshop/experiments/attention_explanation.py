"""Is attention an explanation? A classifier whose evidence is known.

A sequence contains words; each word is a name with a class. The question is one
of the names, and the answer is the class of that name: exactly one word of the
sequence, the **evidence**, determines the answer, and its position is known.

Source: a recurrent encoder with additive attention and one linear output layer
    is the model of Jain and Wallace (2019), section 2,
    https://arxiv.org/abs/1902.10186; without recurrence it is the
    "Embedding + Attention" of Pruthi et al. (2020), section 4, whose deceptive
    training is in section 3, https://arxiv.org/abs/1909.07913. Departure: the task
    is synthetic.
Axes: B batch, S words, M width of a state, K classes
"""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.recurrent import AdditiveAttention
from attnbook.diagnose.explanations import (
    measure_erasure,
    measure_naming,
    multiply_gradient_by_input,
    multiply_weights_by_norms,
)
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import Encoder, Memory, count_parameters
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded, sweep

NAMES, CLASSES = 12, 4
WORDS = NAMES * CLASSES  # word = CLASSES · name + class
SEEDS = (0, 1, 2)
SHORTEST, LENGTH = 6, 8  # words of a training sequence; all tests have LENGTH
TESTED, BATCH, RATE, STEPS = 500, 64, 5e-3, 2400
EMBEDDING, HIDDEN = 32, 48  # of the recurrent encoder; a state has 2 * HIDDEN
ENCODERS = ("recurrent", "embedding")
PENALTIES = {"plain": 0.0, "deceptive 1": 1.0}
LARGEST = 1 - 1e-6  # weight in the penalty, which would be infinite at 1


class QuestionBatch(NamedTuple):
    """Sequences with a question each."""

    words: Int[Tensor, "B S"]
    question: Int[Tensor, " B"]  # the name that is asked for
    answer: Int[Tensor, " B"]  # the class of that name
    evidence: Int[Tensor, " B"]  # the position of the word with that name


def draw_questions(count: int, length: int, rng: torch.Generator) -> QuestionBatch:
    """Return sequences of different names, each with a random class."""
    names = torch.rand(count, NAMES, generator=rng).argsort(dim=1)[:, :length]
    classes = torch.randint(CLASSES, (count, length), generator=rng)
    evidence = torch.randint(length, (count,), generator=rng)
    question, answer = (x.gather(1, evidence[:, None])[:, 0] for x in (names, classes))
    return QuestionBatch(CLASSES * names + classes, question, answer, evidence)


class EmbeddingEncoder(nn.Module):
    """Word embeddings as states: a state depends on its own word alone."""

    def __init__(self, symbols: int, width: int):
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(symbols, width)

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Return the embeddings of the words as states."""
        states = self.embed(source)
        return Memory(states, states[:, -1], lengths)


class AttentionClassifier(nn.Module):
    """An encoder, one additive attention, and a linear output layer.

    The question enters through the attention scores alone: the output layer
    reads the context vector.
    """

    def __init__(self, encoder: "Encoder | EmbeddingEncoder", width: int = 32):
        super().__init__()
        self.encoder = encoder
        self.question = nn.Embedding(NAMES, width)
        self.attention = AdditiveAttention(width, encoder.width, width)
        self.output = nn.Linear(encoder.width, CLASSES)

    def encode(self, words: Int[Tensor, "B S"]) -> Float[Tensor, "B S M"]:
        lengths = words.new_full(words.shape[:1], words.shape[1])
        return self.encoder(words, lengths).states

    def forward(
        self, words: Int[Tensor, "B S"], question: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B S"]]:
        """Return the logits of the classes, and the attention weights."""
        states = self.encode(words)
        query = self.question(question)[:, None]
        weights = self.attention(query, self.attention.key(states)).softmax(dim=-1)
        return self.output((weights @ states)[:, 0]), weights[:, 0]


def build_model(encoder: str, seed: int) -> AttentionClassifier:
    with use_seed(seed):
        if encoder == "recurrent":
            return AttentionClassifier(Encoder(WORDS, EMBEDDING, HIDDEN))
        return AttentionClassifier(EmbeddingEncoder(WORDS, 2 * HIDDEN))


def train(model: AttentionClassifier, penalty: float, seed: int) -> None:
    """Train on newly drawn sequences; the rate decreases linearly to 0."""
    rng = torch.Generator().manual_seed(seed)

    def draw() -> QuestionBatch:
        longer = torch.randint(LENGTH - SHORTEST + 1, (), generator=rng)
        return draw_questions(BATCH, SHORTEST + int(longer), rng)

    optimize(
        torch.optim.Adam(model.parameters(), lr=RATE),
        (draw() for _ in range(STEPS)),
        partial(compute_loss, model, penalty),
        lambda step: RATE * (1 - step / STEPS),
    )
    model.eval()


def compute_loss(
    model: AttentionClassifier, penalty: float, batch: QuestionBatch
) -> Float[Tensor, ""]:
    """Return the cross-entropy, plus the penalty on weight m on the evidence.

    The penalty is -log(1 - m), R of Pruthi et al.
    """
    logits, weights = model(batch.words, batch.question)
    loss = F.cross_entropy(logits, batch.answer)
    if not penalty:
        return loss
    mass = weights.gather(1, batch.evidence[:, None])[:, 0].clamp(max=LARGEST)
    return loss - penalty * torch.log1p(-mass).mean()


@torch.no_grad()
def test_model(model: AttentionClassifier) -> dict:
    """Return accuracy, the weight on the evidence, and which measures name it."""
    batch = draw_questions(TESTED, LENGTH, torch.Generator().manual_seed(10**6))
    logits, weights = model(batch.words, batch.question)
    output = logits.softmax(-1)
    parts = F.linear(model.encode(batch.words), model.output.weight)  # (B, S, K)

    def answer(words: Tensor) -> Float[Tensor, "B K"]:
        return model(words, batch.question)[0].softmax(-1)

    measures = {
        "attention": weights,
        "weighted value": multiply_weights_by_norms(
            weights, parts - parts.mean(-1, keepdim=True)
        ),
        "erasure": measure_erasure(answer, batch.words, output),
        "gradient": multiply_gradient_by_input(
            model.encoder.embed, lambda: answer(batch.words)
        ),
    }
    right = output.argmax(-1) == batch.answer
    return {
        "accuracy": float(right.double().mean()),
        "evidence_weight": float(weights.gather(1, batch.evidence[:, None]).mean()),
        "naming": {k: measure_naming(x, batch.evidence) for k, x in measures.items()},
    }


@recorded(seeds=SEEDS, steps=STEPS)
def attention_explanation() -> dict:
    """Record which measures name the evidence, also after deceptive training."""

    def measure(encoder: str, seed: int, training: str) -> dict:
        model = build_model(encoder, seed)
        train(model, PENALTIES[training], seed)
        return test_model(model)

    rows = sweep(measure, encoder=ENCODERS, seed=SEEDS, training=PENALTIES)
    sizes = {name: count_parameters(build_model(name, 0)) for name in ENCODERS}
    return {"rows": rows, "parameters": sizes}
