"""Networks on graphs: their layers, and what an MLP is among them."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.attention.graph import attend_graph, attend_graph_v2
from workshop.experiments.graph_network import (
    NEIGHBOR_LAYERS,
    GraphNetwork,
    NeighborMean,
    join_neighbors,
    join_selves,
)

N, INPUTS, WIDTH, HEADS, K = 7, 5, 3, 2, 4
LINKS = torch.tensor([[0, 1, 2, 4, 5, 0], [1, 0, 3, 4, 6, 2]])
EDGES = join_neighbors(LINKS, N)


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def make(name, **more):
    torch.manual_seed(0)
    layer = NEIGHBOR_LAYERS[name]
    return GraphNetwork(layer, INPUTS, K, WIDTH, HEADS, **more).eval()


def test_neighbors_are_joined_in_both_directions_once_and_to_themselves():
    expected = {(i, i) for i in range(N)}
    for a, b in ((0, 1), (2, 3), (5, 6), (0, 2)):
        expected |= {(a, b), (b, a)}
    found = [tuple(x) for x in EDGES.T.tolist()]
    assert set(found) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("name", NEIGHBOR_LAYERS)
def test_a_layer_is_its_function(name):
    layer, x = make(name).first, draw(N, INPUTS)
    w = layer.weight
    expected = {
        "mean": lambda: attend_graph(x, EDGES, w, w.new_zeros(HEADS, 2, WIDTH)),
        "GAT": lambda: attend_graph(x, EDGES, w, layer.a),
        "GATv2": lambda: attend_graph_v2(x, EDGES, w, w, layer.a),
    }[name]()
    torch.testing.assert_close(layer(x, EDGES), torch.cat([*expected], dim=-1))
    own = layer.compute_weights(x, EDGES)
    torch.testing.assert_close(layer(x, EDGES), layer(x, EDGES, own))


@pytest.mark.parametrize("name", NEIGHBOR_LAYERS)
def test_on_edges_to_themselves_every_network_is_an_mlp(name):
    model, x = make(name), draw(N, INPUTS)
    found = model(x, join_selves(EDGES, N))
    hidden = F.elu(x @ model.first.weight.flatten(0, 1).T)
    torch.testing.assert_close(found, hidden @ model.second.weight[0].T)


def test_weights_can_be_replaced_in_both_layers():
    model, x = make("GAT"), draw(N, INPUTS)
    equal = 1 / EDGES[1].bincount()[EDGES[1]]
    weights = equal.expand(HEADS, -1), equal[None]
    mean = make("mean")
    mean.load_state_dict(
        {k: v for k, v in model.state_dict().items() if not k.endswith("a")}
    )
    torch.testing.assert_close(model(x, EDGES, weights=weights), mean(x, EDGES))


@pytest.mark.refusal
def test_an_unknown_node_is_refused():
    message = "names the node 7, but the graph has 7 nodes"
    links = torch.tensor([[0, 7], [1, 2]])
    with pytest.raises(ValueError, match=message):
        join_neighbors(links, N)
    with pytest.raises(ValueError, match=message):
        GraphNetwork(NeighborMean, INPUTS, K)(draw(N, INPUTS), links)
