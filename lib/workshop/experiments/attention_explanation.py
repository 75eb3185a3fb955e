"""Is attention an explanation? Tests where the evidence is known.

Source: permuted and adversarial attention of Jain and Wallace (2019), section
    4, https://arxiv.org/abs/1902.10186; uniform attention and a trained
    adversary of Wiegreffe and Pinter (2019), sections 3.1 and 4,
    https://aclanthology.org/D19-1002; deceptive training of Pruthi et
    al. (2020), section 3, https://arxiv.org/abs/1909.07913. Departure: tasks
    whose evidence is known by construction; the gradient also flows through the
    attention weights, and is multiplied by the input. The norm of the weighted value:
    Kobayashi et al. (2020), https://arxiv.org/abs/2004.10102.
Axes: B batch, S words, K classes
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.diagnose.explanations import (
    jensen_shannon,
    kullback_leibler,
    total_variation,
)
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import Encoder, count_parameters
from attnbook.training.loop import optimize
from workshop.experiments.attention_classifier import (
    CLASSES,
    WORDS,
    AttentionClassifier,
    EmbeddingEncoder,
    QuestionBatch,
    UniformClassifier,
    draw_keyword_task,
    draw_question_task,
)
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
SHORTEST, LENGTH = 6, 8  # words of a training sequence; all tests have LENGTH
TESTED, BATCH, RATE = 500, 64, 5e-3
EMBEDDING, HIDDEN = 32, 48  # of the recurrent encoder; a state has 2 * HIDDEN
EPSILON = 0.01  # change of the output (total variation) that is "the same"
TASKS = {"question": draw_question_task, "keyword": draw_keyword_task}
STEPS = {"question": 2400, "keyword": 600}
ENCODERS = ("recurrent", "embedding")
SHUFFLES = 20
LARGEST = 1 - 1e-6  # weight in the penalty, which would be infinite at 1
STRENGTH = 0.01  # of the divergence that the trained adversary seeks
STARTS, SEARCH_STEPS = 5, 300  # of the search for other weights
PENALTY = 500.0  # on outputs that change by more than EPSILON

Loss = Callable[[QuestionBatch], Float[Tensor, ""]]


@dataclass
class Tested:
    """A trained model on the test sequences."""

    model: AttentionClassifier
    batch: QuestionBatch
    output: Tensor
    weights: Tensor
    measures: dict[str, Tensor] = field(default_factory=dict)


def build_model(
    encoder: str, seed: int, kind: type[AttentionClassifier]
) -> AttentionClassifier:
    with use_seed(seed):
        if encoder == "recurrent":
            return kind(Encoder(WORDS, EMBEDDING, HIDDEN))
        return kind(EmbeddingEncoder(WORDS, 2 * HIDDEN))


def train(model: AttentionClassifier, task: str, seed: int, compute_loss: Loss) -> None:
    """Train on newly drawn sequences; the rate decreases linearly to 0."""
    rng, steps = torch.Generator().manual_seed(seed), STEPS[task]

    def draw() -> QuestionBatch:
        longer = torch.randint(LENGTH - SHORTEST + 1, (), generator=rng)
        return TASKS[task](BATCH, SHORTEST + int(longer), rng)

    optimize(
        torch.optim.Adam(model.parameters(), lr=RATE),
        (draw() for _ in range(steps)),
        compute_loss,
        lambda step: RATE * (1 - step / steps),
    )
    model.eval()


def train_to_answer(
    model: AttentionClassifier, penalty: float, batch: QuestionBatch
) -> Float[Tensor, ""]:
    """Return the cross-entropy, plus the penalty on weight m on the evidence.

    The penalty is -log(1 - m), R of Pruthi et al.
    """
    logits, weights = model(batch.words, batch.question)
    loss = F.cross_entropy(logits, batch.answer)
    if not penalty:
        return loss
    positions = torch.arange(weights.shape[1], device=weights.device)
    forbidden = positions == batch.evidence[:, None]
    mass = (weights * forbidden).sum(dim=-1).clamp(max=LARGEST)
    return loss - penalty * torch.log1p(-mass).mean()


def train_to_imitate(
    model: AttentionClassifier, base: AttentionClassifier, batch: QuestionBatch
) -> Float[Tensor, ""]:
    """Return the adversary's loss: how far outputs differ, less how far weights do."""
    logits, weights = model(batch.words, batch.question)
    with torch.no_grad():
        wanted, avoided = base(batch.words, batch.question)
    difference = total_variation(logits.softmax(-1), wanted.softmax(-1))
    return (difference - STRENGTH * kullback_leibler(weights, avoided)).mean()


def measure_erasure(
    answer: Callable[[Tensor], Tensor], words: Int[Tensor, "B S"]
) -> Float[Tensor, "B S"]:
    """Return how much the output changes when each word is deleted."""
    output = answer(words)
    changes = [
        total_variation(answer(torch.cat([words[:, :i], words[:, i + 1 :]], 1)), output)
        for i in range(words.shape[1])
    ]
    return torch.stack(changes, dim=1)


def multiply_gradient_by_input(
    embedding: nn.Module, answer: Callable[[], Float[Tensor, "B K"]]
) -> Float[Tensor, "B S"]:
    """Return |gradient · vector| of each word for the predicted class."""
    kept: list[Tensor] = []

    def keep(module, given, vectors: Tensor) -> Tensor:
        kept.append(vectors.detach().requires_grad_())
        return kept[-1]

    hook = embedding.register_forward_hook(keep)
    with torch.enable_grad():
        likeliest = answer().amax(dim=-1).sum()
    hook.remove()
    (gradient,) = torch.autograd.grad(likeliest, kept)
    return (gradient * kept[0].detach()).sum(dim=-1).abs()


def measure_naming(
    importance: Float[Tensor, "B S"], evidence: Int[Tensor, " B"]
) -> float:
    """Return the share of sequences whose most important word is the evidence."""
    return float((importance.argmax(dim=-1) == evidence).double().mean())


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


def predict(
    model: AttentionClassifier, question: Tensor, words: Tensor
) -> Float[Tensor, "B K"]:
    return model(words, question)[0].softmax(-1)


@torch.no_grad()
def test_model(model: AttentionClassifier, task: str) -> Tested:
    """Return the outputs and all measures on sequences of no training."""
    rng = torch.Generator().manual_seed(10**6)
    batch = TASKS[task](TESTED, LENGTH, rng)
    logits, weights = model(batch.words, batch.question)
    tested = Tested(model, batch, logits.softmax(-1), weights)
    states = model.encode(batch.words)
    parts = F.linear(states, model.output.weight)  # (B, S, K)
    answer = partial(predict, model, batch.question)
    tested.measures = {
        "attention": weights,
        "weighted value": weights * (parts - parts.mean(-1, keepdim=True)).norm(dim=-1),
        "erasure": measure_erasure(answer, batch.words),
        "gradient": multiply_gradient_by_input(
            model.encoder.embed, lambda: answer(batch.words)
        ),
    }
    return tested


def summarize(tested: Tested) -> dict:
    """Return accuracy, the weight on the evidence, and what is named."""
    batch, measures = tested.batch, tested.measures
    right = tested.output.argmax(-1) == batch.answer
    mass = tested.weights.gather(1, batch.evidence[:, None])
    return {
        "accuracy": float(right.double().mean()),
        "evidence_weight": float(mass.mean()),
        "naming": {
            name: measure_naming(x, batch.evidence) for name, x in measures.items()
        },
        "naming_by_class": {
            name: [
                measure_naming(x[batch.answer == k], batch.evidence[batch.answer == k])
                for k in range(CLASSES)
            ]
            for name, x in measures.items()
        },
    }


def find_other_weights(tested: Tested, seed: int) -> dict:
    """Return how far weights can be from a model's own, with the same output."""
    states = tested.model.encode(tested.batch.words).detach()

    def read(tried: Tensor) -> Tensor:
        return tested.model.read_states(states, tried).softmax(-1)

    rng = torch.Generator().manual_seed(seed)
    for _ in range(SHUFFLES):  # the recorded run drew these first
        torch.rand(tested.weights.shape, generator=rng)
    found = find_adversarial_weights(read, tested.weights, rng)
    divergence = jensen_shannon(found, tested.weights)
    same = tested.batch.words % CLASSES == tested.batch.answer[:, None]
    twins = same.sum(-1) > 1  # another word has the answer's class
    return {
        "adversarial_divergence": float(divergence.mean()),
        "adversarial_divergence_with_twin": float(divergence[twins].mean()),
        "adversarial_divergence_without": float(divergence[~twins].mean()),
        "with_twin": int(twins.sum()),
    }


def run_seed(task: str, encoder: str, seed: int) -> dict[str, Tested]:
    """Train and test the models of one seed, by the way of training."""

    def make(kind: type[AttentionClassifier]) -> AttentionClassifier:
        return build_model(encoder, seed, kind)

    plain, uniform = make(AttentionClassifier), make(UniformClassifier)
    deceptive, adversary = make(AttentionClassifier), make(AttentionClassifier)
    train(plain, task, seed, partial(train_to_answer, plain, 0.0))
    train(uniform, task, seed, partial(train_to_answer, uniform, 0.0))
    train(deceptive, task, seed, partial(train_to_answer, deceptive, 1.0))
    train(adversary, task, seed, partial(train_to_imitate, adversary, plain))
    models = {"plain": plain, "uniform": uniform}
    models |= {"deceptive 1": deceptive, "adversary": adversary}
    return {name: test_model(model, task) for name, model in models.items()}


def summarize_seed(
    task: str, encoder: str, seed: int, tested: dict[str, Tested]
) -> list[dict]:
    """Return the rows of the record for the models of one seed."""
    rows, base = [], tested["plain"]
    for name, one in tested.items():
        row = {"task": task, "encoder": encoder, "training": name, "seed": seed}
        row |= summarize(one)
        if name == "plain":
            row |= find_other_weights(one, seed)
        else:
            changes = total_variation(one.output, base.output)
            divergence = jensen_shannon(one.weights, base.weights)
            row["against_plain"] = {
                "output_change": float(changes.mean()),
                "divergence": float(divergence.mean()),
            }
        rows.append(row)
    return rows


@recorded(seeds=SEEDS, steps=STEPS)
def attention_explanation() -> dict:
    """Record which measures name the evidence, and published tests of it."""
    rows, parameters = [], {}
    for task, encoder, seed in product(TASKS, ENCODERS, SEEDS):
        tested = run_seed(task, encoder, seed)
        rows += summarize_seed(task, encoder, seed, tested)
        parameters[encoder] = count_parameters(tested["plain"].model)
    return {"rows": rows, "parameters": parameters}
