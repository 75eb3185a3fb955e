"""A classifier that attends once, and a task whose evidence is known.

A sequence contains words; each word is a name with a class. The question is one
of the names, and the answer is the class of that name: exactly one word of the
sequence, the **evidence**, determines the answer, and its position is known. In
the keyword task, only one word of a sequence has a class and the question is
always the same.

Source: a recurrent encoder with additive attention and one linear output layer
    is the model of Jain and Wallace (2019), section 2,
    https://arxiv.org/abs/1902.10186; without recurrence it is the
    "Embedding + Attention" of Pruthi et al. (2020), section 4,
    https://arxiv.org/abs/1909.07913. Departure: the tasks are synthetic.
Axes: B batch, S words, M width of a state, K classes
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.recurrent import AdditiveAttention
from attnbook.models.recurrent import Encoder, Memory

NAMES, CLASSES = 12, 4
WORDS = NAMES * CLASSES  # word = CLASSES · name + class
FILLERS = NAMES - 1  # of the keyword task: names that have no class


class QuestionBatch(NamedTuple):
    """Sequences with a question each."""

    words: Int[Tensor, "B S"]
    question: Int[Tensor, " B"]  # the name that is asked for
    answer: Int[Tensor, " B"]  # the class of that name
    evidence: Int[Tensor, " B"]  # the position of the word with that name


def draw_question_task(count: int, length: int, rng: torch.Generator) -> QuestionBatch:
    """Return sequences of different names, each with a random class."""
    names, classes, evidence = draw_sequences(count, length, NAMES, rng)
    words = CLASSES * names + classes
    return QuestionBatch(
        words, take_word(names, evidence), take_word(classes, evidence), evidence
    )


def draw_keyword_task(count: int, length: int, rng: torch.Generator) -> QuestionBatch:
    """Return sequences in which one word has a class, and one question.

    The other words are fillers: names that always have class 0.
    """
    names, classes, evidence = draw_sequences(count, length, FILLERS, rng)
    positions = torch.arange(length)
    here = positions == evidence[:, None]
    keyword = CLASSES * FILLERS + classes
    words = torch.where(here, keyword, CLASSES * names)
    question = torch.full_like(evidence, FILLERS)
    return QuestionBatch(words, question, take_word(classes, evidence), evidence)


def draw_sequences(
    count: int, length: int, names: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B S"], Int[Tensor, " B"]]:
    """Return different names, random classes, and one random position each."""
    if length > names:
        raise ValueError(f"{length} words need as many different names, not {names}")
    order = torch.rand(count, names, generator=rng).argsort(dim=1)
    classes = torch.randint(CLASSES, (count, length), generator=rng)
    evidence = torch.randint(length, (count,), generator=rng)
    return order[:, :length], classes, evidence


def take_word(
    words: Int[Tensor, "B S"], position: Int[Tensor, " B"]
) -> Int[Tensor, " B"]:
    return words.gather(1, position[:, None])[:, 0]


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

    def compute_weights(
        self, states: Float[Tensor, "B S M"], question: Int[Tensor, " B"]
    ) -> Float[Tensor, "B S"]:
        query = self.question(question)[:, None]
        scores = self.attention(query, self.attention.key(states))
        return scores[:, 0].softmax(dim=-1)

    def read_states(
        self, states: Float[Tensor, "B S M"], weights: Float[Tensor, "B S"]
    ) -> Float[Tensor, "B K"]:
        """Return the logits of the classes for any attention weights."""
        context = (weights[:, None] @ states)[:, 0]
        return self.output(context)

    def forward(
        self, words: Int[Tensor, "B S"], question: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B S"]]:
        """Return the logits of the classes, and the attention weights."""
        states = self.encode(words)
        weights = self.compute_weights(states, question)
        return self.read_states(states, weights), weights


class UniformClassifier(AttentionClassifier):
    """The same model with equal weights on all words, in training as well.

    Source: the uniform baseline of Wiegreffe and Pinter (2019), section 3.1,
        https://aclanthology.org/D19-1002
    """

    def compute_weights(
        self, states: Float[Tensor, "B S M"], question: Int[Tensor, " B"]
    ) -> Float[Tensor, "B S"]:
        return torch.full_like(states[..., 0], 1 / states.shape[1])
