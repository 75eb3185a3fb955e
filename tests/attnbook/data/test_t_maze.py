"""The T-maze: what agents see, where they go, and which rewards they get."""

import pytest
import torch

from attnbook.data.t_maze import (
    BUMP,
    FORWARD,
    JUNCTION,
    LEFT,
    NEAR,
    PATTERNS,
    RIGHT,
    TMaze,
)


def make_maze(count=200, length=5):
    return TMaze(count, length, torch.Generator().manual_seed(0))


def test_one_of_the_first_cells_shows_the_turn_and_the_last_is_the_junction():
    maze = make_maze()
    is_sign = maze.cells < JUNCTION
    assert (is_sign.sum(-1) == 1).all() and (maze.cells[:, -1] == 2).all()
    assert torch.equal(is_sign.long().argmax(-1), maze.sign)
    assert maze.sign.unique().tolist() == [*range(NEAR)]
    assert torch.equal(maze.cells[is_sign], maze.target)
    assert maze.target.unique().tolist() == [LEFT, RIGHT]
    others = maze.cells[:, :-1][~is_sign[:, :-1]]
    assert others.unique().tolist() == [*PATTERNS]


def test_an_agent_that_goes_ahead_sees_each_cell_once():
    maze, ahead = make_maze(), torch.full((200,), FORWARD)
    seen = []
    for _ in range(5):
        seen.append(maze.observe())
        assert not maze.step(ahead).any()
    seen.append(maze.observe())
    assert torch.equal(torch.stack(seen, 1), maze.cells)
    assert not maze.done.any()
    assert (maze.step(ahead) == BUMP).all()  # no way ahead at the junction
    assert (maze.position == 5).all()


def test_the_turn_at_the_junction_ends_the_episode():
    maze = make_maze()
    maze.position.fill_(5)
    turn = torch.arange(200) % 2
    right = turn == maze.target
    assert torch.equal(maze.step(turn), torch.where(right, 1.0, -1.0))
    assert maze.done.all()
    assert not maze.step(turn).any()  # nothing happens after the end


def test_a_turn_in_the_corridor_leads_into_a_wall():
    maze = make_maze()
    before = maze.observe()
    for turn in (LEFT, RIGHT):
        assert (maze.step(torch.full((200,), turn)) == BUMP).all()
    assert torch.equal(maze.observe(), before) and not maze.done.any()


@pytest.mark.refusal
def test_errors_name_both_values():
    with pytest.raises(ValueError, match=r"of 2 cells.* first 3"):
        make_maze(length=2)
    with pytest.raises(ValueError, match="3 actions for 4 episodes"):
        make_maze(4).step(torch.zeros(3, dtype=torch.long))
