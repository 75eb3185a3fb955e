"""The T-maze: what agents see, their rewards, returns, the policy gradient."""

import pytest
import torch
from torch import nn

from attnbook.data.t_maze import BUMP, FORWARD, JUNCTION, LEFT, NEAR, RIGHT, TMaze
from attnbook.models.memory_agent import AttentionAgent, RecurrentAgent
from attnbook.training.t_maze import (
    DISCOUNT,
    ENTROPY,
    VALUE,
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


def make_maze(length=5, count=64):
    return TMaze(count, length, torch.Generator().manual_seed(0))


def test_one_of_the_first_cells_shows_the_turn_and_the_last_is_the_junction():
    maze = make_maze()
    is_sign = maze.cells < JUNCTION
    assert (is_sign.sum(-1) == 1).all() and (maze.cells[:, -1] == JUNCTION).all()
    assert torch.equal(is_sign.long().argmax(-1), maze.sign)
    assert maze.sign.unique().tolist() == [*range(NEAR)]
    assert torch.equal(maze.cells[is_sign], maze.target)
    assert maze.target.unique().tolist() == [LEFT, RIGHT]
    others = maze.cells[:, :-1][~is_sign[:, :-1]]
    assert (others > JUNCTION).all() and len(others.unique()) > 1


def test_an_agent_moves_ahead_to_the_junction_where_its_turn_ends_the_episode():
    maze, ahead = make_maze(), torch.full((64,), FORWARD)
    for turn in (LEFT, RIGHT):  # into a wall
        assert (maze.step(torch.full((64,), turn)) == BUMP).all()
    for cell in range(5):
        assert torch.equal(maze.observe(), maze.cells[:, cell])
        assert not maze.step(ahead).any()
    assert (maze.observe() == JUNCTION).all() and not maze.done.any()
    assert (maze.step(ahead) == BUMP).all()  # no way ahead at the junction
    turn = torch.arange(64) % 2
    right = turn == maze.target
    assert torch.equal(maze.step(turn), torch.where(right, 1.0, -1.0))
    assert maze.done.all()
    assert not maze.step(turn).any()  # nothing happens after the end


def test_an_agent_that_remembers_the_sign_always_succeeds():
    maze = make_maze()
    episodes = play(Remembering(), maze)
    assert episodes.success.all() and episodes.running.all()
    assert torch.equal(episodes.observations, maze.cells)
    assert torch.equal(episodes.actions[:, -1], maze.target)
    assert (episodes.rewards.sum(-1) == 1).all()


def test_returns_are_discounted_sums_of_later_rewards():
    rewards = torch.tensor([[1.0, 0.0, -1.0, 4.0]])
    wanted = torch.tensor([[1.25, 0.5, 1.0, 4.0]])
    torch.testing.assert_close(compute_returns(rewards, 0.5), wanted)
    assert torch.equal(compute_returns(rewards, 0.0), rewards)


def test_the_loss_is_reinforce_and_ignores_what_follows_the_end():
    agent, maze = RecurrentAgent(7, 3), make_maze()
    episodes = play(agent, maze, torch.Generator().manual_seed(0))
    running = torch.arange(episodes.running.shape[1]) < 4
    cut = episodes._replace(running=running.expand(64, -1))
    logits, values, _ = agent(cut.observations)
    policy = torch.distributions.Categorical(logits=logits)
    error = compute_returns(cut.rewards, DISCOUNT) - values
    gain = error.detach() * policy.log_prob(cut.actions)
    wanted = (VALUE * error**2 - gain - ENTROPY * policy.entropy())[:, :4].sum() / 64
    found = compute_policy_loss(agent, cut)
    ours, theirs = (
        torch.autograd.grad(x, agent.policy.weight, retain_graph=True)
        for x in (found, wanted)
    )
    torch.testing.assert_close((found, *ours), (wanted, *theirs))


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


@pytest.mark.refusal
def test_a_short_corridor_and_too_few_actions_are_refused():
    with pytest.raises(ValueError, match=r"of 2 cells.* first 3"):
        make_maze(length=2)
    with pytest.raises(ValueError, match="3 actions for 4 episodes"):
        make_maze(count=4).step(torch.zeros(3, dtype=torch.long))
