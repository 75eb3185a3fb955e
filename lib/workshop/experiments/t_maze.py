"""Agents in a T-maze: which memory learns fastest, and where does it attend?

Axes: B episodes, L cells of the corridor, T steps
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.data.t_maze import ACTIONS, NEAR, PATTERNS, SYMBOLS, TMaze
from attnbook.models.devices import use_seed
from attnbook.models.memory_agent import (
    AttentionAgent,
    MemorylessAgent,
    RecurrentAgent,
    UnpositionedAgent,
)
from attnbook.models.recurrent import count_parameters
from attnbook.training.t_maze import play, train
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
STEPS = {5: 100, 10: 150, 20: 300, 40: 400}  # batches by training length
SIZE = 64  # episodes in a batch
BLOCK = 5  # batches in a point of a learning curve
TESTED, TEST_SEED = 400, 10**6
LONGER = (1, 2, 4)  # test lengths, as multiples of the training length
AGENTS = {
    "attention": AttentionAgent,
    "attention without positions": UnpositionedAgent,
    "recurrent": RecurrentAgent,
    "memoryless": MemorylessAgent,
}
LENGTHS = dict.fromkeys(AGENTS, tuple(STEPS)) | {
    "attention without positions": (10, 40)
}
CHANGES = ("erased", "flipped", "other cell")


def make_agent(name: str, seed: int) -> MemorylessAgent:
    """Return an untrained agent."""
    with use_seed(seed):
        return AGENTS[name](SYMBOLS, ACTIONS)


def draw_mazes(length: int) -> TMaze:
    """Return the mazes on which agents are tested, at their start."""
    return TMaze(TESTED, length, torch.Generator().manual_seed(TEST_SEED))


def draw_other_pattern(
    shown: Int[Tensor, " B"], rng: torch.Generator
) -> Int[Tensor, " B"]:
    """Return a random wall pattern for each cell, not what it shows."""
    first, count = PATTERNS.start, len(PATTERNS)
    any_one = torch.randint(count, shown.shape, generator=rng)
    shift = torch.randint(1, count, shown.shape, generator=rng)
    another = (shown - first + shift).remainder(count)
    return first + torch.where(shown >= first, another, any_one)


def change_cell(maze: TMaze, change: str) -> None:
    """Change what one cell of each maze shows.

    Args:
        maze: at its start.
        change: "erased", a wall pattern instead of the sign; "flipped", the
            other sign; "other cell", another pattern in one of the cells in
            which no sign can be.
    """
    rng = torch.Generator().manual_seed(TEST_SEED + 1)
    cell = maze.sign
    if change == "other cell":
        cell = torch.randint(NEAR, maze.length, cell.shape, generator=rng)
    shown = maze.cells.gather(1, cell[:, None])[:, 0]
    is_flipped = change == "flipped"
    shows = 1 - shown if is_flipped else draw_other_pattern(shown, rng)
    maze.cells.scatter_(1, cell[:, None], shows[:, None])


def measure_success(
    agent: MemorylessAgent, length: int, change: str | None = None
) -> dict:
    """Return what the most probable actions lead to.

    Returns:
        `success`, the share of right turns; `turned`, that of all turns at the
        junction; and `steps`, their mean number.
    """
    maze = draw_mazes(length)
    if change is not None:
        change_cell(maze, change)
    episodes = play(agent, maze)
    return {
        "success": float(episodes.success.double().mean()),
        "turned": float(maze.done.double().mean()),
        "steps": float(episodes.running.double().sum(-1).mean()),
    }


def weigh_junction(agent: AttentionAgent, maze: TMaze) -> Float[Tensor, "B T"]:
    """Return the junction's weights on the cells of an agent that never bumps.

    It sees each cell once, so T is L + 1.
    """
    with torch.no_grad():
        return agent.compute_weights(maze.cells)[:, -1]


def measure_sign_weight(agent: AttentionAgent, length: int) -> float:
    """Return the junction's mean weight on the sign."""
    maze = draw_mazes(length)
    weights = weigh_junction(agent, maze)
    return float(weights.gather(1, maze.sign[:, None]).double().mean())


def average_by_sign(agent: AttentionAgent, length: int) -> list[list[float]]:
    """Return the junction's mean weights on all cells, by the sign's cell."""
    maze = draw_mazes(length)
    weights = weigh_junction(agent, maze)
    return [
        weights[maze.sign == cell].mean(0).tolist()
        for cell in range(int(maze.sign.max()) + 1)
    ]


def find_first_success(curve: list[float], level: float = 0.9) -> int | None:
    """Return the episodes after which a block first succeeds this often."""
    for i, success in enumerate(curve):
        if success >= level - 1e-6:  # a mean of single precision
            return (i + 1) * BLOCK * SIZE
    return None


def run_agent(name: str, length: int, seed: int) -> dict:
    """Train and test one agent; return its row of the record."""
    agent = make_agent(name, seed)
    row: dict = {"agent": name, "length": length, "seed": seed}
    attends = isinstance(agent, AttentionAgent)
    if attends:
        row["untrained_weight"] = measure_sign_weight(agent, length)
    successes = torch.tensor(train(agent, length, STEPS[length], seed))
    curve = successes.unflatten(0, (-1, BLOCK)).mean(-1).tolist()
    row |= {"curve": curve, "episodes": find_first_success(curve)}
    tests = {f: measure_success(agent, f * length) for f in LONGER}
    row["steps"] = tests[1]["steps"]
    row["longer"] = {str(f * length): t["success"] for f, t in tests.items()}
    changed = {c: measure_success(agent, length, c) for c in CHANGES}
    row["changed"] = {c: x["success"] for c, x in changed.items()}
    row["turned"] = {c: x["turned"] for c, x in changed.items()}
    if attends:
        row["weight"] = {
            str(f * length): measure_sign_weight(agent, f * length) for f in LONGER
        }
    if attends and length == 10 and seed == SEEDS[0]:
        row["by_sign"] = average_by_sign(agent, length)
    return row


@recorded(
    on_cpu=True,
    seeds=SEEDS,
    batches=[*STEPS.values()],
    size=SIZE,
    block=BLOCK,
    tested=TESTED,
)
def t_maze() -> dict:
    """Record learning curves, tests and attention of agents in T-mazes."""
    rows = [
        run_agent(name, length, seed)
        for name in AGENTS
        for length in LENGTHS[name]
        for seed in SEEDS
    ]
    parameters = {name: count_parameters(make_agent(name, 0)) for name in AGENTS}
    return {"rows": rows, "parameters": parameters}
