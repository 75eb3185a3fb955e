"""The right key of a drawn lookup is the one that it names."""

import torch

from attnbook.data.graph_tasks import draw_lookup


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
