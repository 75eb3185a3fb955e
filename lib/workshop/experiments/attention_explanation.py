"""Is attention an explanation? Tests where the evidence is known.

A sequence contains words; each word is a name with a class. The question is one
of the names, and the answer is the class of that name: exactly one word of the
sequence, the **evidence**, determines the answer, and its position is known. In
the keyword task, only one word of a sequence has a class and the question is
always the same.

Source: a recurrent encoder with additive attention and one linear output layer, and
    adversarial attention: Jain and Wallace (2019), sections 2 and 4,
    https://arxiv.org/abs/1902.10186; uniform attention and a trained adversary:
    Wiegreffe and Pinter (2019), sections 3.1 and 4, https://aclanthology.org/D19-1002;
    deceptive training, and embeddings as states: Pruthi et al. (2020), sections 3 and
    4, https://arxiv.org/abs/1909.07913; the norm of the weighted value: Kobayashi et
    al. (2020), https://arxiv.org/abs/2004.10102. Departure: synthetic tasks; the
    gradient also flows through the attention weights, and is multiplied by the input.
Axes: B batch, S words, M width of a state, K classes
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.recurrent import AdditiveAttention
from attnbook.diagnose.explanations import (
    jensen_shannon,
    kullback_leibler,
    total_variation,
)
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import Encoder, Memory, count_parameters
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded

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
    asked, answer = (x.gather(1, evidence[:, None])[:, 0] for x in (names, classes))
    return QuestionBatch(CLASSES * names + classes, asked, answer, evidence)


def draw_keyword_task(count: int, length: int, rng: torch.Generator) -> QuestionBatch:
    """Return sequences of fillers and one keyword: fillers always have class 0."""
    names, classes, evidence = draw_sequences(count, length, FILLERS, rng)
    here = torch.arange(length) == evidence[:, None]
    words = torch.where(here, CLASSES * FILLERS + classes, CLASSES * names)
    answer = classes.gather(1, evidence[:, None])[:, 0]
    return QuestionBatch(words, torch.full_like(evidence, FILLERS), answer, evidence)


def draw_sequences(
    count: int, length: int, names: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B S"], Int[Tensor, " B"]]:
    """Return different names, random classes, and one random position each."""
    order = torch.rand(count, names, generator=rng).argsort(dim=1)
    classes = torch.randint(CLASSES, (count, length), generator=rng)
    evidence = torch.randint(length, (count,), generator=rng)
    return order[:, :length], classes, evidence


class EmbeddingEncoder(nn.Module):
    """Word embeddings as states: a state depends on its own word alone."""

    def __init__(self, symbols: int, width: int):
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(symbols, width)

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        states = self.embed(source)
        return Memory(states, states[:, -1], lengths)


class AttentionClassifier(nn.Module):
    """An encoder, one additive attention, and a linear output layer.

    The question enters through the attention scores alone: the output layer
    reads the context vector. With `uniform`, all weights are equal.
    """

    def __init__(self, encoder: nn.Module, width: int = 32, uniform: bool = False):
        super().__init__()
        self.encoder, self.uniform = encoder, uniform
        self.question = nn.Embedding(NAMES, width)
        self.attention = AdditiveAttention(width, encoder.width, width)
        self.output = nn.Linear(encoder.width, CLASSES)

    def encode(self, words: Int[Tensor, "B S"]) -> Float[Tensor, "B S M"]:
        lengths = words.new_full(words.shape[:1], words.shape[1])
        return self.encoder(words, lengths).states

    def read_states(
        self, states: Float[Tensor, "B S M"], weights: Float[Tensor, "B S"]
    ) -> Float[Tensor, "B K"]:
        """Return the logits of the classes for any attention weights."""
        return self.output((weights[:, None] @ states)[:, 0])

    def forward(
        self, words: Int[Tensor, "B S"], question: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B S"]]:
        states = self.encode(words)
        query = self.question(question)[:, None]
        weights = self.attention(query, self.attention.key(states))[:, 0].softmax(-1)
        if self.uniform:
            weights = torch.full_like(weights, 1 / weights.shape[1])
        return self.read_states(states, weights), weights


SEEDS = (0, 1, 2)
SHORTEST, LENGTH = 6, 8  # words of a training sequence; all tests have LENGTH
TESTED, BATCH, RATE = 500, 64, 5e-3
EMBEDDING, HIDDEN = 32, 48  # of the recurrent encoder; a state has 2 * HIDDEN
EPSILON = 0.01  # change of the output (total variation) that is "the same"
TASKS = {"question": draw_question_task, "keyword": draw_keyword_task}
STEPS = {"question": 2400, "keyword": 600}
ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "recurrent": lambda: Encoder(WORDS, EMBEDDING, HIDDEN),
    "embedding": lambda: EmbeddingEncoder(WORDS, 2 * HIDDEN),
}
SHUFFLES = 20
LARGEST = 1 - 1e-6  # weight in the penalty, which would be infinite at 1
STRENGTH = 0.01  # of the divergence that the trained adversary seeks
STARTS, SEARCH_STEPS = 5, 300  # of the search for other weights
PENALTY = 500.0  # on outputs that change by more than EPSILON

Loss = Callable[[Tensor, Tensor, QuestionBatch], Float[Tensor, ""]]


def train_classifier(
    task: str, encoder: str, seed: int, compute_loss: Loss, uniform: bool = False
) -> AttentionClassifier:
    """Train on newly drawn sequences; the rate decreases linearly to 0."""
    with use_seed(seed):
        model = AttentionClassifier(ENCODERS[encoder](), uniform=uniform)
    rng, steps = torch.Generator().manual_seed(seed), STEPS[task]

    def draw() -> QuestionBatch:
        longer = torch.randint(LENGTH - SHORTEST + 1, (), generator=rng)
        return TASKS[task](BATCH, SHORTEST + int(longer), rng)

    optimize(
        torch.optim.Adam(model.parameters(), lr=RATE),
        (draw() for _ in range(steps)),
        lambda batch: compute_loss(*model(batch.words, batch.question), batch),
        lambda step: RATE * (1 - step / steps),
    )
    return model.eval()


def answer(logits: Tensor, weights: Tensor, batch: QuestionBatch) -> Float[Tensor, ""]:
    return F.cross_entropy(logits, batch.answer)


def deceive(logits: Tensor, weights: Tensor, batch: QuestionBatch) -> Float[Tensor, ""]:
    """Return the cross-entropy plus -log(1 - weight on the evidence), Pruthi's R."""
    forbidden = torch.arange(weights.shape[1]) == batch.evidence[:, None]
    mass = (weights * forbidden).sum(dim=-1).clamp(max=LARGEST)
    return answer(logits, weights, batch) - torch.log1p(-mass).mean()


def imitate(
    base: AttentionClassifier, logits: Tensor, weights: Tensor, batch: QuestionBatch
) -> Float[Tensor, ""]:
    """Return the adversary's loss: how far outputs differ, less how far weights do."""
    with torch.no_grad():
        wanted, avoided = base(batch.words, batch.question)
    difference = total_variation(logits.softmax(-1), wanted.softmax(-1))
    return (difference - STRENGTH * kullback_leibler(weights, avoided)).mean()


def measure_erasure(
    predict: Callable[[Tensor], Tensor], words: Int[Tensor, "B S"]
) -> Float[Tensor, "B S"]:
    """Return how much the output changes when each word is deleted."""
    output, places = predict(words), torch.arange(words.shape[1])
    changes = [total_variation(predict(words[:, places != i]), output) for i in places]
    return torch.stack(changes, dim=1)


def multiply_gradient_by_input(
    embedding: nn.Module, predict: Callable[[], Float[Tensor, "B K"]]
) -> Float[Tensor, "B S"]:
    """Return |gradient · vector| of each word for the predicted class."""
    kept: list[Tensor] = []

    def keep(module, given, vectors: Tensor) -> Tensor:
        kept.append(vectors.detach().requires_grad_())
        return kept[-1]

    hook = embedding.register_forward_hook(keep)
    with torch.enable_grad():
        likeliest = predict().amax(dim=-1).sum()
    hook.remove()
    (gradient,) = torch.autograd.grad(likeliest, kept)
    return (gradient * kept[0].detach()).sum(dim=-1).abs()


def find_adversarial_weights(
    read: Callable[[Float[Tensor, "B S"]], Float[Tensor, "B K"]],
    weights: Float[Tensor, "B S"],
    rng: torch.Generator,
) -> Float[Tensor, "B S"]:
    """Search for different weights that leave the output almost unchanged.

    Returns for each row the weights found with the largest Jensen-Shannon divergence
    from its own; its own where none were found.
    """
    output, best = read(weights).detach(), weights.clone()
    for _ in range(STARTS):
        logits = (3 * torch.randn(weights.shape, generator=rng)).requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=0.1)
        for _ in range(SEARCH_STEPS):
            tried = logits.softmax(dim=-1)
            change = total_variation(read(tried), output)
            divergence = jensen_shannon(tried, weights)
            excess = (change - EPSILON).clamp(min=0)
            loss = (PENALTY * excess - divergence).sum()
            (logits.grad,) = torch.autograd.grad(loss, [logits])
            with torch.no_grad():
                better = divergence > jensen_shannon(best, weights)
                better &= change <= EPSILON
                best = torch.where(better[:, None], tried, best)
            optimizer.step()
    return best


class Tested(NamedTuple):
    """A trained model and its outputs and weights on the test sequences."""

    model: AttentionClassifier
    output: Tensor
    weights: Tensor


@torch.no_grad()
def summarize(tested: Tested, batch: QuestionBatch) -> dict:
    """Return accuracy, the weight on the evidence, and what each measure names."""
    model, output, weights = tested

    def predict(words: Tensor) -> Tensor:
        return model(words, batch.question)[0].softmax(-1)

    parts = F.linear(model.encode(batch.words), model.output.weight)  # (B, S, K)
    found = {
        "attention": weights,
        "weighted value": weights * (parts - parts.mean(-1, keepdim=True)).norm(dim=-1),
        "erasure": measure_erasure(predict, batch.words),
        "gradient": multiply_gradient_by_input(
            model.encoder.embed, lambda: predict(batch.words)
        ),
    }
    named = {k: (x.argmax(-1) == batch.evidence).double() for k, x in found.items()}
    classes = [batch.answer == k for k in range(CLASSES)]
    return {
        "accuracy": float((output.argmax(-1) == batch.answer).double().mean()),
        "evidence_weight": float(weights.gather(1, batch.evidence[:, None]).mean()),
        "naming": {k: float(x.mean()) for k, x in named.items()},
        "naming_by_class": {
            k: [float(x[chosen].mean()) for chosen in classes] for k, x in named.items()
        },
    }


def find_other_weights(tested: Tested, batch: QuestionBatch, seed: int) -> dict:
    """Return how far weights can be from a model's own, with the same output."""
    model, _, weights = tested
    states = model.encode(batch.words).detach()
    rng = torch.Generator().manual_seed(seed)
    for _ in range(SHUFFLES):  # the recorded run drew these first
        torch.rand(weights.shape, generator=rng)
    found = find_adversarial_weights(
        lambda tried: model.read_states(states, tried).softmax(-1), weights, rng
    )
    divergence = jensen_shannon(found, weights)
    same = batch.words % CLASSES == batch.answer[:, None]
    twins = same.sum(-1) > 1  # another word has the answer's class
    return {
        "adversarial_divergence": float(divergence.mean()),
        "adversarial_divergence_with_twin": float(divergence[twins].mean()),
        "adversarial_divergence_without": float(divergence[~twins].mean()),
        "with_twin": int(twins.sum()),
    }


def compare(one: Tested, other: Tested) -> dict:
    return {
        "output_change": float(total_variation(one.output, other.output).mean()),
        "divergence": float(jensen_shannon(one.weights, other.weights).mean()),
    }


@recorded(seeds=SEEDS, steps=STEPS)
def attention_explanation() -> dict:
    """Record which measures name the evidence, and published tests of it."""
    rows, parameters = [], {}
    for task, encoder, seed in product(TASKS, ENCODERS, SEEDS):
        train = partial(train_classifier, task, encoder, seed)
        plain = train(answer)
        models = {"plain": plain, "uniform": train(answer, uniform=True)}
        models |= {"deceptive 1": train(deceive)}
        models |= {"adversary": train(partial(imitate, plain))}
        batch = TASKS[task](TESTED, LENGTH, torch.Generator().manual_seed(10**6))
        parameters[encoder] = count_parameters(plain)
        base: Tested | None = None
        for name, model in models.items():
            with torch.no_grad():
                logits, weights = model(batch.words, batch.question)
            tested = Tested(model, logits.softmax(-1), weights)
            row = {"task": task, "encoder": encoder, "training": name, "seed": seed}
            row |= summarize(tested, batch)
            if base is None:
                base = tested
                row |= find_other_weights(tested, batch, seed)
            else:
                row["against_plain"] = compare(tested, base)
            rows.append(row)
    return {"rows": rows, "parameters": parameters}
