"""The right neighbors of the drawn graphs, and the graph of the help pages."""

import torch

from attnbook.data.graphs import (
    draw_labeled,
    draw_lookup,
    load_help_graph,
)


def test_the_right_key_of_a_lookup_has_the_attribute_and_the_value():
    task = draw_lookup(3, 5, torch.Generator().manual_seed(0))
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


def test_words_links_and_classes_are_those_of_a_page():
    graph = load_help_graph()
    assert graph.features.shape == (len(graph.pages), len(graph.words))
    page = graph.pages.index("sdraw/guide/combine_etc.html")
    assert graph.classes[graph.labels[page]] == "sdraw"
    words = {graph.words[i] for i in graph.features[page].nonzero().flatten()}
    assert {"combine", "objects", "shapes"} <= words
    linked = graph.links[1, graph.links[0] == page]
    assert [graph.pages[x] for x in linked] == [
        "sdraw/guide/groups.html",
        "simpress/01/13180000.html",
    ]
    assert not (graph.links[0] == graph.links[1]).any()


def test_labeled_pages_are_as_many_of_each_class():
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    drawn = draw_labeled(labels, 2, torch.Generator().manual_seed(0))
    assert labels[drawn].tolist() == [0, 0, 1, 1]
    assert len(set(drawn.tolist())) == 4
