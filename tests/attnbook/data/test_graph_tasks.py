"""The right neighbors of the drawn graphs are those that they name."""

import pytest
import torch

from attnbook.data import graph_tasks
from attnbook.data.graphs import draw_lookup, draw_noisy_graph


@pytest.mark.parametrize(("asked", "wrong"), [(1, 0), (1, 6), (4, 2), (3, 8)])
def test_right_neighbors_have_the_class_and_the_topic(asked, wrong, monkeypatch):
    monkeypatch.setattr(graph_tasks, "NOISE", 0.0)
    rng = torch.Generator().manual_seed(asked)
    task = draw_noisy_graph(50, asked, wrong, rng)
    assert task.features.shape == (50 + 400, 8)
    source, target = task.edges
    assert target.bincount().tolist() == [8] * 50
    assert source.sort().values.equal(torch.arange(50, 450))
    classes, topics = task.features.split(4, dim=1)
    agree = (topics[source] == topics[target]).all(-1)
    assert agree.equal(task.right)
    assert task.right.sum() == 50 * (8 - wrong)
    shown = classes[source].argmax(-1)
    assert (shown == task.labels[target])[task.right].all()
    assert not classes[:50].any()
    assert len(topics[:50].unique(dim=0)) == asked


def test_the_right_key_of_a_lookup_has_the_attribute_and_the_value():
    rng = torch.Generator().manual_seed(0)
    task = draw_lookup(3, 5, rng)
    source, target = task.edges
    assert task.features.shape == (30, 10)
    assert len(task.labels) == 15 and task.edges.shape == (2, 75)
    assert target.max() < 15 <= source.min()
    attributes, values = task.features.split(5, dim=1)
    same = (attributes[source] == attributes[target]).all(-1)
    assert same.equal(task.right)
    assert target[same].equal(torch.arange(15))
    assert values[source[same]].argmax(-1).equal(task.labels)
    assert not values[:15].any()
    # Keys are neighbors of the queries of their own lookup alone.
    assert (source // 5 - 3).equal(target // 5)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("asked", "wrong", "message"),
    [
        (5, 0, "topics must be between 1 and 4, not 5"),
        (1, 9, "wrong neighbors must be between 0 and 8, not 9"),
    ],
)
def test_impossible_graphs_are_refused(asked, wrong, message):
    with pytest.raises(ValueError, match=message):
        draw_noisy_graph(3, asked, wrong, torch.Generator())
