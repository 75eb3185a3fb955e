"""Training an agent in the T-maze by policy gradient.

Source: REINFORCE of Williams (1992), section 4, with the baseline of Sutton and
    Barto (2018), section 13.4, http://incompleteideas.net/book/the-book.html
Axes: B episodes, T steps, A actions
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.data.t_maze import TMaze
from attnbook.models.devices import find_device, sample_columns
from attnbook.training.loop import optimize

DISCOUNT = 0.95
ENTROPY = 0.02  # weight of the entropy bonus
VALUE = 0.5  # weight of the value's squared error
BATCH = 64  # episodes
SPARE = 16  # steps that an episode may take beyond L + 1


class Episodes(NamedTuple):
    """What happened in a batch of episodes."""

    observations: Int[Tensor, "B T"]  # what the agent saw
    actions: Int[Tensor, "B T"]
    rewards: Float[Tensor, "B T"]
    running: Bool[Tensor, "B T"]  # until the turn at the junction, included
    success: Bool[Tensor, " B"]  # whether that turn was right


@torch.no_grad()
def play(agent: nn.Module, maze: TMaze, rng: torch.Generator | None = None) -> Episodes:
    """Let an agent act until it has turned in every maze, or time is over.

    Args:
        agent: called as agent(observations, memory).
        maze: at its start; it is at its end afterwards.
        rng: draws the actions; the most probable ones unless given.
    """
    device, memory, steps = find_device(agent), None, []
    for _ in range(maze.length + 1 + SPARE):
        seen, running = maze.observe(), ~maze.done
        logits, _, memory = agent(seen[:, None].to(device), memory)
        if rng is None:
            action = logits[:, 0].argmax(-1)
        else:
            action = sample_columns(logits[:, 0].softmax(-1), rng)[:, 0]
        reward = maze.step(action.to(seen.device))
        steps.append((seen, action, reward, running))
        if maze.done.all():
            break
    seen, action, reward, running = (
        torch.stack([x.to(device) for x in column], dim=1)
        for column in zip(*steps, strict=True)
    )
    return Episodes(seen, action, reward, running, (reward == 1).any(-1))


def compute_returns(
    rewards: Float[Tensor, "B T"], discount: float
) -> Float[Tensor, "B T"]:
    """Return the discounted sum of the rewards from each step on."""
    returns, after = [], torch.zeros_like(rewards[:, 0])
    for reward in rewards.flip(1).unbind(1):
        after = reward + discount * after
        returns.append(after)
    return torch.stack(returns, dim=1).flip(1)


def compute_policy_loss(agent: nn.Module, episodes: Episodes) -> Float[Tensor, ""]:
    """Return the loss whose gradient is that of REINFORCE with a baseline.

    The baseline is the agent's value; its squared error and an entropy bonus
    are part of the loss. Each is summed over the steps of an episode.
    """
    logits, values, _ = agent(episodes.observations)
    logs = logits.log_softmax(-1)
    chosen = logs.gather(-1, episodes.actions[..., None])[..., 0]
    entropy = -(logs.exp() * logs).sum(-1)
    error = compute_returns(episodes.rewards, DISCOUNT) - values
    loss = VALUE * error**2 - error.detach() * chosen - ENTROPY * entropy
    return (loss * episodes.running).sum(-1).mean()


def train(
    agent: nn.Module, length: int, steps: int, seed: int, rate: float = 3e-3
) -> list[float]:
    """Train an agent; return the success rate of each batch of 64 episodes.

    Args:
        agent: in evaluation mode afterwards.
        length: cells of the corridor.
        steps: number of batches, each followed by one update.
        seed: of mazes and actions.
        rate: the learning rate.
    """
    rng, successes = torch.Generator().manual_seed(seed), []

    def run_episodes(_: int) -> Episodes:
        episodes = play(agent, TMaze(BATCH, length, rng), rng)
        successes.append(float(episodes.success.float().mean()))
        return episodes

    optimize(
        torch.optim.Adam(agent.parameters(), lr=rate),
        map(run_episodes, range(steps)),
        lambda episodes: compute_policy_loss(agent, episodes),
        clip=1.0,
    )
    agent.eval()
    return successes
