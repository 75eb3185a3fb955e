"""Our graph attention equals PyTorch Geometric's GATConv and GATv2Conv.

Forwards and backwards with a random upstream gradient, in double precision, on
a graph with a node without edges. Theirs adds a bias, which is zero here, and
may add an edge from each node to itself, which is turned off.
"""

import pytest
import torch
from torch_geometric.nn import GATConv, GATv2Conv

from attnbook.attention.graph import attend_graph
from precision import assert_equals_reference, draw
from workshop.experiments.graph_network import (
    GraphAttention,
    GraphAttentionV2,
    join_neighbors,
)

N, INPUTS, WIDTH, HEADS = 23, 7, 5, 3
PLAIN = {"add_self_loops": False, "bias": False}


@pytest.fixture
def graph():
    rng = torch.Generator().manual_seed(1)
    return draw((N, INPUTS))[0], torch.randint(N - 1, (2, 90), generator=rng)


def beside(heads):
    """Return the heads (H, N, F) side by side: (N, H · F)."""
    return heads.transpose(0, 1).flatten(1)


def test_gat_is_theirs(graph):
    features, edges = graph
    layer = GATConv(INPUTS, WIDTH, HEADS, **PLAIN).double()
    weight, a, upstream = draw(
        (HEADS, WIDTH, INPUTS), (HEADS, 2, WIDTH), (N, HEADS * WIDTH)
    )

    def theirs(features, weight, a):
        values = {
            "lin.weight": weight.flatten(0, 1),
            "att_src": a[None, :, 0],
            "att_dst": a[None, :, 1],
        }
        return torch.func.functional_call(layer, values, (features, edges))

    assert_equals_reference(
        lambda x, weight, a: beside(attend_graph(x, edges, weight, a)),
        theirs,
        (features, weight, a),
        upstream,
    )


@pytest.mark.parametrize(
    ("ours", "conv"), [(GraphAttention, GATConv), (GraphAttentionV2, GATv2Conv)]
)
def test_layers_with_edges_to_self_are_theirs(graph, ours, conv):
    """With `add_self_loops`, theirs is a layer on joined neighbors."""
    features, edges = graph
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    layer = ours(INPUTS, WIDTH, HEADS).double()
    more = {} if conv is GATConv else {"share_weights": True}
    other = conv(INPUTS, WIDTH, HEADS, bias=False, **more).double()
    weight = layer.weight.flatten(0, 1)
    values = (
        {"lin.weight": weight, "att_src": layer.a[None, :, 0],
         "att_dst": layer.a[None, :, 1]}
        if conv is GATConv
        else {"lin_l.weight": weight, "lin_r.weight": weight,
              "att": layer.a[None]}
    )  # fmt: skip
    joined = join_neighbors(edges, N)
    both = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
    found = layer(features, joined)
    expected = torch.func.functional_call(other, values, (features, both))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
