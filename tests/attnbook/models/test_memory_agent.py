"""Agents with a memory: step by step as at once, and what they can see."""

import pytest
import torch

from attnbook.models.memory_agent import (
    AttentionAgent,
    MemorylessAgent,
    RecurrentAgent,
    UnpositionedAgent,
)
from attnbook.models.recurrent import count_parameters
from perturbed import perturb

KINDS = [AttentionAgent, UnpositionedAgent, RecurrentAgent, MemorylessAgent]
B, T = 3, 11


@pytest.fixture
def seen():
    return torch.randint(7, (B, T), generator=torch.Generator().manual_seed(0))


def make(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return perturb(kind(7, 3)).eval()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_an_agent_acts_step_by_step_as_it_does_at_once(kind, seen):
    agent, memory, steps = make(kind), None, []
    logits, values, _ = agent(seen)
    for t in range(T):
        *step, memory = agent(seen[:, t : t + 1], memory)
        steps.append(step)
    one_by_one = [torch.cat(parts, 1) for parts in zip(*steps, strict=True)]
    torch.testing.assert_close(one_by_one, [logits, values])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_only_a_memory_carries_an_observation_on_and_none_goes_back(kind, seen):
    agent, changed = make(kind), seen.clone()
    changed[:, 4] = (seen[:, 4] + 1) % 7
    difference = (agent(seen)[0] - agent(changed)[0]).abs().amax((0, 2))
    assert (difference[:4] == 0).all() and difference[4] > 1e-4
    assert bool(difference[5:].max() > 1e-4) == (kind is not MemorylessAgent)


@torch.no_grad()
def test_the_weights_are_those_of_the_block_and_causal(seen):
    agent = make(AttentionAgent)
    weights = agent.compute_weights(seen)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T))
    assert not weights.triu(1).any()
    value = agent.core.attention.value(agent.core.norms[0](agent.embed(seen)))
    x = agent.embed(seen) + agent.core.attention.output(weights @ value)
    x = agent.norm(x + agent.core.feed_forward(agent.core.norms[1](x)))
    torch.testing.assert_close(agent.policy(x), agent(seen)[0])


@torch.no_grad()
def test_without_positions_the_order_of_the_past_does_not_matter(seen):
    shuffled = seen.clone()
    shuffled[:, :-1] = seen[:, :-1].flip(1)
    for kind, same in ((UnpositionedAgent, True), (AttentionAgent, False)):
        agent = make(kind)
        found = agent(seen)[0][:, -1] - agent(shuffled)[0][:, -1]
        assert bool(found.abs().max() < 1e-5) == same


def test_the_agents_have_about_equal_numbers_of_parameters():
    counts = [count_parameters(kind(7, 3)) for kind in KINDS]
    assert counts == [10756, 10756, 10744, 10692]
