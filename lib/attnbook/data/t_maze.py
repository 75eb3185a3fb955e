"""A T-maze: a sign near the start says where to turn at the end of a corridor.

A corridor of L cells leads to a junction. One of the first cells shows a sign,
left or right; the other cells show random wall patterns, which mean nothing. An
agent sees only the cell in which it is. At the junction, a turn to the side of
the sign succeeds, and a turn to the other side fails.

Source: the T-maze of Bakker (2002), Reinforcement Learning with Long Short-Term
    Memory, https://papers.neurips.cc/paper/2001/hash/a38b16173474ba8b1a95bcbc30d3b8a5-Abstract.html
    Departures: the sign is in a random one of the first cells, the walls have
    patterns, and the rewards differ.
Axes: B episodes, L cells of the corridor
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEFT, RIGHT, FORWARD = range(3)  # actions; the first two are also the signs
JUNCTION = 2  # what the last cell shows
PATTERNS = range(3, 7)  # what the other cells show
SYMBOLS, ACTIONS = 7, 3
NEAR = 3  # the sign is in one of this many first cells
BUMP = -0.1  # reward of an action that leads into a wall


class TMaze:
    """A batch of T-mazes, one episode each, on the generator's device.

    Attributes:
        cells: (B, L + 1) what each cell shows; the last is the junction. Tests
            of an agent may change it before the first step.
        sign: (B,) the cell with the sign.
        target: (B,) the turn that the sign shows, LEFT or RIGHT.
        position: (B,) the cell in which the agent is.
        done: (B,) whether the agent has turned at the junction.

    Args:
        count: B.
        length: L.
        rng: draws signs and patterns.

    Raises:
        ValueError: if the corridor is shorter than the cells for the sign.
    """

    def __init__(self, count: int, length: int, rng: torch.Generator):
        if length < NEAR:
            raise ValueError(
                f"a corridor of {length} cells is too short: the sign is in "
                f"one of the first {NEAR}"
            )

        def draw(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(low, high, shape, generator=rng, device=rng.device)

        self.length = length
        self.cells = draw(PATTERNS.start, PATTERNS.stop, count, length + 1)
        self.sign, self.target = draw(0, NEAR, count), draw(0, 2, count)
        self.cells.scatter_(1, self.sign[:, None], self.target[:, None])
        self.cells[:, length] = JUNCTION
        self.position = torch.zeros_like(self.sign)
        self.done = torch.zeros_like(self.sign, dtype=torch.bool)

    def observe(self) -> Int[Tensor, " B"]:
        """Return what the cell of each agent shows."""
        return self.cells.gather(1, self.position[:, None])[:, 0]

    def step(self, action: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Move every agent that has not turned yet, and return the rewards.

        A turn at the junction ends the episode with reward 1 to the side of the
        sign and -1 to the other. A turn in the corridor, and FORWARD at the
        junction, lead into a wall: the agent stays, with reward BUMP.

        Raises:
            ValueError: if there is not one action an episode.
        """
        if len(action) != len(self.position):
            raise ValueError(f"{len(action)} actions for {len(self.position)} episodes")
        ahead = action == FORWARD
        at_end = self.position == self.length
        turned, moved = at_end & ~ahead, ahead & ~at_end
        reward = torch.where(
            turned,
            torch.where(action == self.target, 1.0, -1.0),
            torch.where(moved, 0.0, BUMP),
        )
        reward = reward * ~self.done
        self.position = self.position + moved.long()
        self.done = self.done | turned
        return reward
