"""Training in the T-maze: episodes, returns, the policy gradient."""

import pytest
import torch
from torch import nn

from attnbook.data.t_maze import FORWARD, JUNCTION, TMaze
from attnbook.models.memory_agent import AttentionAgent, RecurrentAgent
from attnbook.training.t_maze import (
    DISCOUNT,
    ENTROPY,
    VALUE,
    Episodes,
    compute_policy_loss,
    compute_returns,
    play,
    train,
)


class Remembering(nn.Module):
    """An agent written by hand: it remembers the sign and turns that way."""

    def forward(self, seen, memory=None):
        memory = torch.full_like(seen, FORWARD) if memory is None else memory
        memory = torch.where(seen < JUNCTION, seen, memory)
        action = torch.where(seen == JUNCTION, memory, FORWARD)
        logits = 50 * nn.functional.one_hot(action, 3).float()
        return logits, torch.zeros(seen.shape), memory


def make_maze(length=5):
    return TMaze(64, length, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rng", [None, torch.Generator().manual_seed(0)])
def test_an_agent_that_remembers_the_sign_always_succeeds(rng):
    maze = make_maze()
    episodes = play(Remembering(), maze, rng)
    assert episodes.success.all() and episodes.running.all()
    assert torch.equal(episodes.observations, maze.cells)
    assert torch.equal(episodes.actions[:, -1], maze.target)
    assert (episodes.rewards.sum(-1) == 1).all()


def test_returns_are_discounted_sums_of_later_rewards():
    rewards = torch.tensor([[1.0, 0.0, -1.0, 4.0]])
    wanted = torch.tensor([[1.25, 0.5, 1.0, 4.0]])
    torch.testing.assert_close(compute_returns(rewards, 0.5), wanted)
    assert torch.equal(compute_returns(rewards, 0.0), rewards)


def test_the_loss_is_its_formula_and_ignores_what_follows_the_end():
    agent, maze = RecurrentAgent(7, 3), make_maze()
    episodes = play(agent, maze, torch.Generator().manual_seed(0))
    running = torch.arange(episodes.running.shape[1]) < 4
    cut = Episodes(*(x[:2] for x in episodes))._replace(running=running.expand(2, -1))
    returns = compute_returns(cut.rewards, DISCOUNT)
    logits, values, _ = agent(cut.observations)
    wanted = torch.zeros(())
    for b in range(2):
        for t in range(4):
            policy = torch.distributions.Categorical(logits=logits[b, t])
            advantage = (returns[b, t] - values[b, t]).detach()
            wanted = wanted - advantage * policy.log_prob(cut.actions[b, t])
            wanted = wanted + VALUE * (returns[b, t] - values[b, t]) ** 2
            wanted = wanted - ENTROPY * policy.entropy()
    found = compute_policy_loss(agent, cut)
    torch.testing.assert_close(found, wanted / 2)
    ours, theirs = (
        torch.autograd.grad(x, agent.policy.weight, retain_graph=True)
        for x in (found, wanted / 2)
    )
    torch.testing.assert_close(ours, theirs)


def test_attention_learns_a_short_maze_and_a_seed_gives_one_result():
    def learn(steps):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            agent = AttentionAgent(7, 3)
        return agent, train(agent, 3, steps, seed=0, rate=1e-2)

    agent, successes = learn(50)
    assert len(successes) == 50 and not agent.training
    assert play(agent, make_maze(3)).success.float().mean() > 0.95
    assert learn(3)[1] == successes[:3]
