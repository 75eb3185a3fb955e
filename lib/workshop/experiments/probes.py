"""What a context vector contains: linear probes of an encoder's final state.

Source: the probing of Adi et al. (2017), section 3,
    https://arxiv.org/abs/1608.04207 (there word content and order; here the
    letter at each position). Departure: one linear layer, no hidden one.
Axes: N words, K positions, V symbols, M memory width
"""

import random
from collections import Counter
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data import Pair
from attnbook.data.vocabulary import PAD, pad_sequences
from attnbook.models.devices import find_device, use_seed
from attnbook.training.loop import optimize
from attnbook.training.run import load_trained
from attnbook.training.tasks import Task
from workshop.experiments.machine import get_device
from workshop.experiments.record import recorded

PROBED = ("cmudict_fixed_0", "cmudict_forward_0", "cmudict_backward_0")
LENGTHS = (6, 9, 12)
WORDS = 3000  # to train a probe on, as many for each length
STEPS, EVERY, RATE = 3000, 250, 1e-2


@torch.no_grad()
def compute_contexts(
    model: nn.Module, data: Task, pairs: Sequence[Pair]
) -> Float[Tensor, "N M"]:
    """Return the context vector of each source."""
    rows = []
    for start in range(0, len(pairs), 512):
        some = [data.encode_source(p.source) for p in pairs[start : start + 512]]
        source, lengths = (x.to(find_device(model)) for x in pad_sequences(some))
        rows.append(model.encoder(source, lengths).last)
    return torch.cat(rows)


def encode_letters(
    data: Task, pairs: Sequence[Pair], positions: int
) -> Int[Tensor, "N K"]:
    """Return the id of the letter at each position, PAD after the end."""
    table = torch.full((len(pairs), positions), PAD)
    for row, p in zip(table, pairs, strict=True):
        ids = data.sources.encode_known(p.source)[:positions]
        row[: len(ids)] = torch.tensor(ids)
    return table


def fit_probe(
    vectors: Float[Tensor, "N M"], wanted: Int[Tensor, "N K"], symbols: int
) -> nn.Linear:
    """Return a linear layer from a vector to the letter at every position.

    A fifteenth of the rows, at the end, is not trained on. The weights are
    kept from the step at which the loss on these rows was lowest.
    """
    with use_seed(0):
        probe = nn.Linear(vectors.shape[1], wanted.shape[1] * symbols)
    probe, wanted = probe.to(vectors.device), wanted.to(vectors.device)
    rng = torch.Generator().manual_seed(0)
    count = len(vectors) - max(1, len(vectors) // 15)
    kept: list[tuple[float, dict[str, Tensor]]] = []

    def keep_weights(step: int, _: float) -> None:
        if step % EVERY == 0:
            with torch.no_grad():
                loss = measure_letter_loss(probe, vectors[count:], wanted[count:])
            weights = {k: v.clone() for k, v in probe.state_dict().items()}
            kept.append((float(loss), weights))

    optimize(
        torch.optim.Adam(probe.parameters()),
        (torch.randint(count, (256,), generator=rng) for _ in range(STEPS)),
        lambda rows: measure_letter_loss(probe, vectors[rows], wanted[rows]),
        rate=lambda step: RATE * (1 - step / STEPS),
        callbacks=[keep_weights],
    )
    keep_weights(0, 0.0)  # after the last step
    probe.load_state_dict(min(kept, key=lambda pair: pair[0])[1])
    return probe


def measure_letter_loss(
    probe: nn.Linear, vectors: Float[Tensor, "N M"], wanted: Int[Tensor, "N K"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the letters, in nats."""
    logits = probe(vectors).unflatten(1, (wanted.shape[1], -1))
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


@torch.no_grad()
def score_probe(
    probe: nn.Linear, vectors: Float[Tensor, "N M"], wanted: Int[Tensor, "N K"]
) -> list[float]:
    """Return the share of letters that the probe reads, by position."""
    logits = probe(vectors).unflatten(1, (wanted.shape[1], -1))
    return (logits.argmax(-1).cpu() == wanted).double().mean(0).tolist()


def measure_chance_level(
    data: Task, known: Sequence[Pair], tested: Sequence[Pair]
) -> list:
    """Return how often the most frequent letter of a position is correct."""
    right = []
    for k in range(len(tested[0].source)):
        common, _ = Counter(p.source[k] for p in known).most_common(1)[0]
        right.append(sum(p.source[k] == common for p in tested) / len(tested))
    return right


def draw_words(words: Sequence[Pair], n: int) -> list[Pair]:
    """Return the words of length n in a random order."""
    some = [p for p in words if len(p.source) == n]
    return random.Random(n).sample(some, len(some))


def probe_encoder(
    model: nn.Module, data: Task, count: int | None = WORDS
) -> dict[str, list[float]]:
    """Return the share of letters read, by length and position."""
    model.to(get_device())
    words = list({p.source: p for p in data.splits.train}.values())
    read = {}
    for n in LENGTHS:
        known = draw_words(words, n)[:count]
        tested = [p for p in data.splits.test if len(p.source) == n]
        probe = fit_probe(
            compute_contexts(model, data, known),
            encode_letters(data, known, n),
            len(data.sources),
        )
        vectors = compute_contexts(model, data, tested)
        read[str(n)] = score_probe(probe, vectors, encode_letters(data, tested, n))
    return read


def compare_with_chance(data: Task) -> tuple[dict, dict]:
    """Return the chance level by length and position, and the test words."""
    words = list({p.source: p for p in data.splits.train}.values())
    guess, counts = {}, {}
    for n in LENGTHS:
        known = draw_words(words, n)
        tested = [p for p in data.splits.test if len(p.source) == n]
        guess[str(n)], counts[str(n)] = (
            measure_chance_level(data, known, tested),
            len(tested),
        )
    return guess, counts


@recorded(seeds=[0])
def context_probe() -> dict:
    """Record how well each letter can be read off the context vector.

    Each length has a probe of its own, so that a position is the same distance
    from both ends in all of its words, and as many words to fit it on. Besides
    trained encoders, encoders with random weights are probed, and the first
    one with all words of a length.
    """
    accuracy: dict[str, dict] = {}
    for name in PROBED:
        model, data, run = load_trained(name)
        accuracy[name] = probe_encoder(model, data)
        if not data.backwards:
            initial = run.model().eval()
            accuracy[f"{name}_untrained"] = probe_encoder(initial, data)
    model, data, _ = load_trained(PROBED[0])
    accuracy["all_words"] = probe_encoder(model, data, count=None)
    guess, counts = compare_with_chance(data)
    return {"accuracy": accuracy, "chance": guess, "words": counts}
