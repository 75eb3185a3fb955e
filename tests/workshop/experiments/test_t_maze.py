"""The study of agents in T-mazes, in a few episodes, and its record."""

import pytest
import torch

from attnbook.data.t_maze import NEAR, PATTERNS
from attnbook.records import read_record
from workshop.experiments import t_maze as study


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(study, "TESTED", 30)
    monkeypatch.setattr(study, "STEPS", {5: study.BLOCK})
    monkeypatch.setattr(study, "LONGER", (1, 2))


def read_cell(maze, cell):
    return maze.cells.gather(1, cell[:, None])[:, 0]


@pytest.mark.parametrize("change", study.CHANGES)
def test_one_cell_of_each_maze_is_changed(change, quick):
    before, maze = study.draw_mazes(5), study.draw_mazes(5)
    study.change_cell(maze, change)
    differs = maze.cells != before.cells
    assert (differs.sum(-1) == 1).all()
    cell = differs.long().argmax(-1)
    shown = read_cell(maze, cell)
    if change == "flipped":
        assert torch.equal(shown, 1 - before.target)
    else:
        assert shown.min() >= PATTERNS.start and shown.max() < PATTERNS.stop
    if change == "other cell":
        assert cell.min() >= NEAR and (cell < 5).all()
    else:
        assert torch.equal(cell, before.sign)


def test_another_pattern_is_any_but_the_one_shown():
    shown = torch.arange(7).repeat(200)
    other = study.draw_other_pattern(shown, torch.Generator().manual_seed(0))
    for symbol in range(7):
        wanted = {*PATTERNS} - {symbol}
        assert {*other[shown == symbol].tolist()} == wanted


def test_the_first_block_that_succeeds_often_enough():
    assert study.find_first_success([0.5, 0.89, 0.9, 0.8]) == 3 * 5 * 64
    assert study.find_first_success([0.5, 0.8]) is None


def test_equal_weights_are_the_chance_level(quick):
    agent = study.make_agent("attention", 0)
    with torch.no_grad():
        agent.core.attention.norms[1].weight.zero_()
    assert study.measure_sign_weight(agent, 5) == pytest.approx(1 / 6)
    for weights in study.average_by_sign(agent, 5):
        assert weights == pytest.approx([1 / 6] * 6)


@pytest.mark.long
@pytest.mark.parametrize("name", ["attention", "memoryless"])
def test_a_row_is_repeated(name, quick):
    first, again = (study.run_agent(name, 5, 0) for _ in range(2))
    assert first == again
    assert len(first["curve"]) == 1 and [*first["longer"]] == ["5", "10"]
    assert ("weight" in first) == (name == "attention")


def test_the_record_has_every_run_and_chance_where_nothing_is_kept():
    results = read_record("t_maze")["results"]
    rows = results["rows"]
    assert {(r["agent"], r["length"], r["seed"]) for r in rows} == {
        (name, length, seed)
        for name in study.AGENTS
        for length in study.LENGTHS[name]
        for seed in study.SEEDS
    }
    for row in rows:
        assert len(row["curve"]) * study.BLOCK == study.STEPS[row["length"]]
        assert row["episodes"] == study.find_first_success(row["curve"])
        assert row["steps"] == row["length"] + 1  # no agent walks into a wall
        if row["agent"] == "memoryless":
            assert all(0.4 < x < 0.6 for x in row["longer"].values())
    assert max(results["parameters"].values()) < 1.01 * min(
        results["parameters"].values()
    )
