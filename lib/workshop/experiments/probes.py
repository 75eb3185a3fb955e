"""What a vector still knows: linear probes of the encoder's last state.

Source: the probing of Adi et al. (2017), section 3,
    https://arxiv.org/abs/1608.04207 (there word content and order; here the
    letter at each place). Departure: one linear layer, no hidden one.
Axes: N words, K places, V symbols, M memory width
"""

from collections import Counter
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data import Pair
from attnbook.data.vocabulary import PAD, pad_sequences
from attnbook.models.devices import device_of, seeded
from attnbook.training.loop import optimize
from attnbook.training.tasks import Task
from attnbook.training.trained import load_trained
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

PROBED = ("cmudict_fixed_0", "cmudict_forward_0", "cmudict_backward_0")
LENGTHS = range(4, 15)


@torch.no_grad()
def compute_contexts(
    model: nn.Module, data: Task, pairs: Sequence[Pair]
) -> Float[Tensor, "N M"]:
    """Return the one vector that the encoder keeps of each source."""
    rows = []
    for start in range(0, len(pairs), 512):
        some = [
            data.encode_source(p.source) for p in pairs[start : start + 512]
        ]
        source, lengths = (x.to(device_of(model)) for x in pad_sequences(some))
        rows.append(model.encoder(source, lengths).last)
    return torch.cat(rows)


def encode_letters(
    data: Task, pairs: Sequence[Pair], places: int
) -> Int[Tensor, "N K"]:
    """Return the number of the letter at each place, PAD after the end."""
    table = torch.full((len(pairs), places), PAD)
    for row, p in zip(table, pairs, strict=True):
        ids = data.sources.encode_known(p.source)[:places]
        row[: len(ids)] = torch.tensor(ids)
    return table


def fit_probe(
    vectors: Float[Tensor, "N M"], wanted: Int[Tensor, "N K"], symbols: int
) -> nn.Linear:
    """Return a linear layer from a vector to the letter at every place."""
    with seeded(0):
        probe = nn.Linear(vectors.shape[1], wanted.shape[1] * symbols)
    probe, wanted = probe.to(vectors.device), wanted.to(vectors.device)
    order = torch.Generator().manual_seed(0)

    def compute_loss(rows: Tensor) -> Tensor:
        logits = probe(vectors[rows]).unflatten(1, (-1, symbols))
        return F.cross_entropy(
            logits.flatten(0, 1), wanted[rows].flatten(), ignore_index=PAD
        )

    optimize(
        torch.optim.Adam(probe.parameters(), lr=3e-3),
        (
            rows
            for _ in range(12)
            for rows in torch.randperm(len(vectors), generator=order).split(256)
        ),
        compute_loss,
    )
    return probe


def measure_chance_level(
    data: Task, known: Sequence[Pair], asked: Sequence[Pair]
) -> list:
    """Return how often the commonest letter of a place is the right one."""
    right = []
    for k in range(len(asked[0].source)):
        common, _ = Counter(p.source[k] for p in known).most_common(1)[0]
        right.append(sum(p.source[k] == common for p in asked) / len(asked))
    return right


@experiment()
@recorded(seeds=[0])
def context_probe() -> dict:
    """Record how well each letter can be read off the context vector."""
    accuracy: dict[str, dict] = {}
    guess: dict[str, list] = {}
    counts: dict[str, int] = {}
    for name in PROBED:
        model, data, _ = load_trained(name)
        model.to(get_device())
        words = {p.source: p for p in data.splits.train}.values()
        fits = [p for p in words if len(p.source) <= LENGTHS[-1]][::3]
        probe = fit_probe(
            compute_contexts(model, data, fits),
            encode_letters(data, fits, LENGTHS[-1]),
            len(data.sources),
        )
        accuracy[name] = {}
        for n in LENGTHS:
            asked = [p for p in data.splits.test if len(p.source) == n]
            with torch.no_grad():
                said = probe(compute_contexts(model, data, asked))
            said = said.unflatten(1, (-1, len(data.sources))).argmax(-1)
            said = said.cpu()
            hits = said[:, :n] == encode_letters(data, asked, n)
            accuracy[name][str(n)] = hits.double().mean(0).tolist()
            counts[str(n)] = len(asked)
            known = [p for p in fits if len(p.source) == n]
            guess[str(n)] = measure_chance_level(data, known, asked)
    return {"accuracy": accuracy, "chance": guess, "words": counts}
