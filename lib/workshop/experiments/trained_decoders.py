"""What forward states tell a trained decoder about positions.

Axes: N states or words, M memory width
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.data import grammar
from attnbook.data.grammar import Aligned
from attnbook.data.vocabulary import START, pad_sequences
from attnbook.models.recurrent import Memory
from attnbook.training.run import load_trained
from attnbook.training.tasks import Task
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
SHORTEST = 14  # words of a sentence that is cut
SMALLEST, PART = 4, 9  # words of its second part


def find_cut(pair: Aligned) -> tuple[int, int] | None:
    """Return the first target and source position after a clean cut."""
    last = len(pair.source)
    for s in range(last - PART, last - SMALLEST + 1):
        t = min(t for t, b in pair.possible if b >= s)
        if all((a >= t) == (b >= s) for a, b in pair.possible):
            return t, s
    return None


@torch.no_grad()
def compute_state_halves(
    model: nn.Module, data: Task, pairs: Sequence[Aligned]
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return forward and backward states (N, M/2), and their positions."""
    rows = [data.encode_source(p.source) for p in pairs]
    memory = model.encoder(*pad_sequences(rows))
    positions = torch.arange(memory.states.shape[1])
    positions = positions.expand(len(pairs), -1)[memory.padding_mask()]
    return memory.states[memory.padding_mask()].chunk(2, dim=-1), positions


def fit_position_probe(
    model: nn.Module, data: Task, pairs: Sequence[Aligned], longer: Sequence
) -> dict:
    """Return the mean position that a linear function reads off longer sentences."""
    states, known = compute_state_halves(model, data, pairs[: len(pairs) // 2])
    far_states, far = compute_state_halves(model, data, longer)
    found = {}
    for name, x, y in zip(("forward", "backward"), states, far_states, strict=True):
        fit = torch.linalg.lstsq(F.pad(x, (0, 1), value=1.0), known.float()[:, None])
        predicted = (F.pad(y, (0, 1), value=1.0) @ fit.solution)[:, 0]
        means = [float(predicted[far == n].mean()) for n in range(grammar.LONGEST)]
        found[name] = {"read_off": means}
    return found


def build_memories(
    model: nn.Module, data: Task, means: Tensor, pair: Aligned, cut: int
) -> dict[str, tuple[Memory, list[int]]]:
    """Return memories of the second part, and the position each state has."""
    source, size = pad_sequences([data.encode_source(pair.source)])
    alone = model.encoder(source[:, cut:], size - cut)
    forward, backward = model.encoder(source, size).states[:, cut:].chunk(2, -1)
    separate = alone.states.chunk(2, -1)[1]
    if not torch.allclose(backward, separate, atol=1e-5):
        raise AssertionError("the backward states of the parts differ")
    right = list(range(len(pair.source) - cut))
    before = [cut + j for j in right]

    def move(to: list[int]) -> tuple[Memory, list[int]]:
        states = torch.cat([forward + means[to] - means[before], backward], dim=-1)
        return alone._replace(states=states), to

    return {
        "unchanged": move(before),
        "right positions": move(right),
        "reversed": move(right[::-1]),
        "encoded separately": (alone, right),
    }


@torch.no_grad()
def measure_wrong_links(model: nn.Module, data: Task) -> dict:
    (forward, _), positions = compute_state_halves(model, data, data.splits.valid)
    count = grammar.TRAINED_LENGTH
    means = torch.stack([forward[positions == n].mean(0) for n in range(count)])
    tallies: dict[str, list[float]] = {}
    pairs: Sequence = data.splits.test
    for pair in pairs:
        found = find_cut(pair) if len(pair.source) >= SHORTEST else None
        if not found:
            continue
        t, cut = found
        previous = torch.tensor([[START, *data.targets.encode(pair.target[t:])]])
        memories = build_memories(model, data, means, pair, cut)
        for name, (memory, to) in memories.items():
            tally = tallies.setdefault(name, [0, 0, 0, 0])
            links = model.decoder(previous, memory).weights[0].argmax(-1)
            for i, s in enumerate(links.tolist()):
                possible = {b - cut for a, b in pair.possible if a == t + i}
                if possible:
                    tally[0] += 1
                    tally[1] += s not in possible
                    tally[2] += to[s] in possible
                    tally[3] += len(possible) / len(to)
    return {
        name: {"wrong": wrong / n, "followed": followed / n, "chance": chance / n}
        for name, (n, wrong, followed, chance) in tallies.items()
    }


@recorded(seeds=SEEDS)
def position_shift() -> dict:
    """Record what moving the forward states does to the links of 3 seeds.

    A sentence is cut where no link crosses. A decoder that starts at the cut gets
    the encoder states of the second part, whose forward halves are moved from the
    mean of one position to the mean of another. If the decoder goes by that
    position, moving the states to the right positions must help, and moving them
    to reversed positions must not.
    """
    results = []
    for seed in SEEDS:
        model, data, _ = load_trained(f"grammar_attention_{seed}")
        probe = fit_position_probe(model, data, data.splits.test, grammar.load_long())
        links = measure_wrong_links(model, data)
        results.append({"seed": seed, "probe": probe, "links": links})
    return {"seeds": results}
