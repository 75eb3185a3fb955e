"""Tests of the experiments on graphs, on small graphs and few steps."""

from functools import partial

import pytest
import torch

from attnbook.data.graph_tasks import draw_lookup, draw_noisy_graph
from attnbook.data.help_graph import HelpGraph
from attnbook.models.graph_network import join_neighbors
from workshop.experiments import graph_tasks, help_graph
from workshop.experiments.graph_tasks import Trial

# Two groups of three pages, linked within; page 2 also to page 3; 6 is alone.
LINKS = torch.tensor([[0, 0, 1, 3, 3, 4, 2], [1, 2, 2, 4, 5, 5, 3]])


@pytest.fixture
def graph(monkeypatch):
    monkeypatch.setattr(help_graph, "LABELED", 1)
    monkeypatch.setattr(help_graph, "STEPS", 30)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    features = torch.eye(7) + torch.nn.functional.one_hot(labels, 7)
    names = tuple("abcdefg")
    return HelpGraph(names, names, features, LINKS, ("x", "y"), labels)


def test_edges_of_each_kind(graph):
    rng = torch.Generator().manual_seed(0)
    made = {
        kind: help_graph.make_edges(graph, kind, rng)
        for kind in ("selves", "links", "same class", "random")
    }
    assert {k: x.shape[1] for k, x in made.items() if k != "random"} == {
        "selves": 7, "links": 7 + 2 * 7, "same class": 7 + 2 * 6,
    }  # fmt: skip
    assert made["links"].equal(join_neighbors(LINKS, 7))
    assert made["random"].max() < 7
    assert help_graph.find_mixed(graph).nonzero().flatten().tolist() == [2, 3]


def test_the_graph_is_counted(graph):
    found = help_graph.count_parts(graph)
    assert found["pairs"] == 7
    assert found["same_class"] == 6 / 7
    assert found["classes"] == {"x": 3, "y": 4}
    assert (found["mixed"], found["tested"]) == (2, 5)
    assert found["largest_class"] == 3 / 5


@pytest.mark.parametrize("method", ["MLP", "GAT", "GATv2"])
def test_networks_learn_and_attention_is_scored(graph, method):
    row = help_graph.measure_seed(graph, method, 0)
    assert row["accuracy"] >= 0.6
    if method == "MLP":
        assert "mass" not in row
        return
    assert all(0 < x < 1 for x in row["mass"])
    assert 0 <= row["equal"] <= 1 and 0 <= row["shuffled"] <= 1
    run = help_graph.train_network(graph, method, 0)
    run.model.first.a.data.zero_()
    run.model.second.a.data.zero_()
    found = help_graph.score_weights(run)
    assert found["mass"] == pytest.approx([found["chance"]] * 2)
    same = help_graph.get_accuracy(run)["accuracy"]
    changed = help_graph.change_weights(run, 0)
    assert changed == {"shuffled": same, "equal": same}


@pytest.mark.parametrize("method", ["MLP", "mean", "GAT", "GATv2"])
def test_a_trial_on_noisy_graphs(method):
    draw = partial(draw_noisy_graph, 32, 1, 0)
    row = graph_tasks.measure_trial(Trial(method, 4, 4, draw, 60, True), 0)
    if method == "MLP":
        assert row["accuracy"] < 0.4
        assert "mass" not in row
    else:
        assert row["accuracy"] > 0.9
        assert row["mass"] == pytest.approx(1)
        assert row["chance"] == 1


def test_only_an_mlp_reads_nothing_but_itself():
    task = draw_lookup(2, 3, torch.Generator().manual_seed(0))
    trial = Trial("mean", 1, 3, None, 1, own=False)
    assert trial.join_edges(task).equal(task.edges)
    with_own = trial._replace(own=True).join_edges(task)
    assert with_own.shape[1] == 18 + 12
    assert with_own[:, :18].equal(task.edges)
    alone = trial._replace(method="MLP").join_edges(task)
    assert alone.equal(torch.arange(12).expand(2, 12))


def test_a_network_with_equal_weights_has_chance_level():
    draw = partial(draw_lookup, 4, 5)
    row = graph_tasks.measure_trial(Trial("mean", 1, 5, draw, 1, False), 0)
    assert row["mass"] == row["best_mass"] == pytest.approx(1 / 5)
    assert row["chance"] == pytest.approx(1 / 5)
