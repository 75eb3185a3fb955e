"""The graph of help pages is what its description says."""

import pytest
import torch

from attnbook.data import help_graph


def test_the_graph_has_the_sizes_that_its_readme_gives():
    graph = help_graph.load()
    assert graph.features.shape == (2560, 1000)
    assert graph.links.shape == (2, 8233)
    assert len(set(graph.pages)) == 2560
    assert len(set(graph.words)) == 1000
    assert graph.labels.bincount().tolist() == [
        *(420, 424, 56, 85, 48, 842, 198, 81, 406)
    ]


def test_words_links_and_classes_are_those_of_a_page():
    graph = help_graph.load()
    page = graph.pages.index("sdraw/guide/combine_etc.html")
    assert graph.classes[graph.labels[page]] == "sdraw"
    words = {
        word
        for word, there in zip(graph.words, graph.features[page], strict=True)
        if there
    }
    assert {"combine", "objects", "shapes"} <= words
    linked = graph.links[1, graph.links[0] == page]
    assert [graph.pages[x] for x in linked] == [
        "sdraw/guide/groups.html",
        "simpress/01/13180000.html",
    ]
    assert not (graph.links[0] == graph.links[1]).any()


def test_labeled_pages_are_as_many_of_each_class():
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    rng = torch.Generator().manual_seed(0)
    drawn = help_graph.draw_labeled(labels, 2, rng)
    assert labels[drawn].tolist() == [0, 0, 1, 1]
    assert len(set(drawn.tolist())) == 4


@pytest.mark.refusal
def test_more_labels_than_a_class_has_are_refused():
    rng = torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match="has 1 nodes, fewer than 2"):
        help_graph.draw_labeled(torch.tensor([0, 1, 1]), 2, rng)
