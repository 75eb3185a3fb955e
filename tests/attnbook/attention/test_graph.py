"""Graph attention against its formula, and GAT's order of the keys.

Forwards and backwards with a random upstream gradient. The graph has a node without
edges, one with an edge to itself, and one edge twice.
"""

import pytest
import torch

from attnbook.attention.graph import (
    attend_graph,
    score_dynamic,
    score_static,
)
from precision import assert_equals_reference, draw, each_dtype

N, C, F, H = 7, 5, 3, 2
# Node 6 has no incoming edge, node 2 one to itself; 1 → 0 is there twice.
SOURCE = (1, 1, 2, 3, 4, 0, 2, 5, 6, 1, 4)
TARGET = (0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 5)
EDGES = torch.tensor([SOURCE, TARGET])
BEGINS, ENDS = (torch.nn.functional.one_hot(x, N).double() for x in EDGES)
INTO = ENDS.mT.bool()  # (N, E): whether an edge leads into a node


def leaky(x):
    return x.relu() - 0.2 * (-x).relu()


def average(scores, values):
    """Softmax over the edges into each node; (H, E) and (H, E, F)."""
    rows = scores[..., None, :].masked_fill(~INTO[:-1], -torch.inf)
    output = rows.softmax(-1) @ values
    return torch.cat([output, 0.0 * values[..., :1, :]], dim=-2)


def static(features, weight, a):
    h = features @ weight.mT
    begin, end = BEGINS.to(h) @ h, ENDS.to(h) @ h
    scores = begin @ a[..., :1, :].mT + end @ a[..., 1:, :].mT
    return average(leaky(scores)[..., 0], begin)


@each_dtype
def test_it_is_its_formula_in_every_precision(dtype):
    shapes = (N, C), (H, F, C), (H, 2, F), (H, N, F)
    *inputs, upstream = (x.to(dtype) for x in draw(*shapes))
    assert_equals_reference(
        lambda features, *more: attend_graph(features, EDGES, *more),
        static,
        inputs,
        upstream,
    )


def test_a_node_without_edges_gets_zeros_and_equal_scores_the_mean():
    features, weight, a = draw((N, C), (F, C), (2, F))
    output = attend_graph(features, EDGES, weight, 0 * a)
    values = features @ weight.mT
    assert not output[6].any()
    torch.testing.assert_close(output[1], values[[3, 4, 0]].mean(0))
    none = attend_graph(features, EDGES[:, :0], weight, a)
    assert torch.equal(none, torch.zeros(N, F, dtype=torch.float64))


def rank_keys(score):
    """Return the number of different orders of the keys, over all queries."""
    nodes = torch.arange(N)
    edges = torch.stack([nodes.repeat(N), nodes.repeat_interleave(N)])
    order = score(edges).view(N, N).argsort(-1)
    return len(order.unique(dim=0))


def test_gat_orders_the_keys_alike_for_every_query_and_gatv2_does_not():
    sources, targets, both, one = draw((N, F), (N, F), (2, F), (F,))
    assert rank_keys(lambda edges: score_static(sources, edges, both)) == 1
    assert rank_keys(lambda edges: score_dynamic(sources, targets, edges, one)) > 1


@pytest.mark.refusal
@pytest.mark.parametrize("node", [-1, N])
def test_an_unknown_node_is_refused(node):
    edges = EDGES.clone()
    edges[0, 3] = node
    features, weight, a = draw((N, C), (F, C), (2, F))
    message = f"an edge names the node {node}, but the graph has 7 nodes"
    with pytest.raises(ValueError, match=message):
        attend_graph(features, edges, weight, a)
