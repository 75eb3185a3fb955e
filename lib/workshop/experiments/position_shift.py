"""Does a decoder attend by position? States moved to right and wrong ones.

A sentence is cut where no link crosses. A decoder that starts at the cut gets
the encoder states of the second part, whose forward halves are moved from the
mean of one position to the mean of another. If the decoder goes by that
position, moving the states to the right positions must help, and moving them
as far to wrong positions must hurt.

Axes: N states, S source words, M memory width
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.data import grammar
from attnbook.data.grammar import Aligned
from attnbook.data.vocabulary import START, pad_sequences
from attnbook.models.encoder import Memory
from attnbook.training.tasks import Task
from attnbook.training.trained import load_trained
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.word_alignment import SEEDS

SHORTEST = 14  # words of a sentence that is cut
SMALLEST, PART = 4, 9  # words of its second part; 3 would rotate to itself
DRAWS = 5  # of random directions
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the way back to position 0

# The position that the j-th of n words behind a cut is moved to.
MOVES: dict[str, Callable[[int, int, int], int]] = {
    "right positions": lambda j, n, cut: j,
    "reversed": lambda j, n, cut: n - 1 - j,
    "rotated by three": lambda j, n, cut: (j + 3) % n,
}


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
    """Return how well a linear function of a state gives its position."""
    half = len(pairs) // 2
    known, tested, far = (
        compute_state_halves(model, data, some)
        for some in (pairs[:half], pairs[half:], longer)
    )
    found = {}
    for i, name in enumerate(("forward", "backward")):
        weights = torch.linalg.lstsq(
            append_ones(known[0][i]), known[1].float()[:, None]
        ).solution
        gap = tested[1] - (append_ones(tested[0][i]) @ weights)[:, 0]
        predicted = (append_ones(far[0][i]) @ weights)[:, 0]
        found[name] = {
            "explained": float(1 - gap.var() / tested[1].float().var()),
            "read_off": [
                float(predicted[far[1] == n].mean()) for n in range(grammar.LONGEST)
            ],
        }
    return found


def append_ones(x: Float[Tensor, "N M"]) -> Tensor:
    """Return x with a column of ones."""
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def build_memories(
    model: nn.Module, data: Task, means: Tensor, pair: Aligned, cut: int
) -> dict[str, list[tuple[Memory, list[int]]]]:
    """Return memories of the second part, and the position each state has.

    Their backward halves are those of the part encoded separately: reading
    from the right, that direction has not met the first part yet.
    """
    source, size = pad_sequences([data.encode_source(pair.source)])
    alone = model.encoder(source[:, cut:], size - cut)
    forward, backward = model.encoder(source, size).states[:, cut:].chunk(2, -1)
    separate = alone.states.chunk(2, -1)[1]
    if not torch.allclose(backward, separate, atol=1e-5):
        raise AssertionError("the backward states of the parts differ")
    n = len(pair.source) - cut
    behind = range(cut, cut + n)
    base = means[list(behind)]

    def moved(to: list[int], noise: Tensor | None = None):
        step = means[to] - base
        if noise is not None:  # as long, in a random direction
            step = noise * step.norm(dim=-1, keepdim=True)
        states = torch.cat([forward + step, backward], dim=-1)
        return alone._replace(states=states), to

    made = {
        f"share {share:g}": [moved([j - round(share * cut) for j in behind])]
        for share in SHARES
    }
    made |= {
        name: [moved([move(j, n, cut) for j in range(n)])]
        for name, move in MOVES.items()
    }
    rng = torch.Generator().manual_seed(cut)
    made["random direction"] = []
    for _ in range(DRAWS):
        noise = torch.randn(n, means.shape[1], generator=rng)
        noise /= noise.norm(dim=-1, keepdim=True)
        made["random direction"].append(moved(list(range(n)), noise))
    made["encoded separately"] = [(alone, list(range(n)))]
    return made


@torch.no_grad()
def measure_wrong_links(model: nn.Module, data: Task) -> dict:
    """Return, for each memory, the shares of wrong and of predicted links.

    `wrong`: the largest weight is on no possible word. `followed`: it is on a
    word whose state was moved to the position of a possible one. `chance`: how
    often a word chosen at random would be possible.
    """
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
        for name, tried in build_memories(model, data, means, pair, cut).items():
            tally = tallies.setdefault(name, [0, 0, 0, 0])
            for memory, to in tried:
                links = model.decoder(previous, memory).weights[0].argmax(-1)
                for i, s in enumerate(links.tolist()):
                    possible = {b - cut for a, b in pair.possible if a == t + i}
                    if possible:
                        tally[0] += 1
                        tally[1] += s not in possible
                        tally[2] += to[s] in possible
                        tally[3] += len(possible) / len(to)
    return {
        name: {
            "wrong": wrong / n,
            "followed": followed / n,
            "chance": chance / n,
            "words": n,
        }
        for name, (n, wrong, followed, chance) in tallies.items()
    }


@experiment(on_cpu=True)
@recorded(seeds=SEEDS)
def position_shift() -> dict:
    """Record what moving the forward states does to the links of 3 seeds."""
    results, cuts = [], 0
    for seed in SEEDS:
        model, data, _ = load_trained(f"grammar_attention_{seed}")
        pairs, longer = data.splits.test, grammar.load_long()
        cuts = sum(len(p.source) >= SHORTEST and find_cut(p) is not None for p in pairs)
        results.append(
            {
                "seed": seed,
                "probe": fit_position_probe(model, data, pairs, longer),
                "links": measure_wrong_links(model, data),
            }
        )
    return {"sentences": cuts, "seeds": results}
