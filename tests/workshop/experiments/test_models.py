"""The models of experiments: their layers, and what they must not read."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.attention.graph import attend_graph
from attnbook.attention.scaled_dot_product import attend
from attnbook.masks import causal, window
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import count_parameters
from workshop.experiments.graph_network import (
    NEIGHBOR_LAYERS,
    GraphNetwork,
    join_neighbors,
    join_selves,
)
from workshop.experiments.sequence_mixers import (
    KERNEL,
    MIXERS,
    WINDOW,
    MixerModel,
    SoftmaxMixer,
    WindowMixer,
    convolve_causally,
)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


N, INPUTS, WIDTH, HEADS, K = 7, 5, 3, 2, 4
EDGES = join_neighbors(torch.tensor([[0, 1, 2, 4, 5, 0], [1, 0, 3, 4, 6, 2]]), N)


def test_neighbors_are_joined_in_both_directions_once_and_to_themselves():
    expected = {(i, i) for i in range(N)}
    for a, b in ((0, 1), (2, 3), (5, 6), (0, 2)):
        expected |= {(a, b), (b, a)}
    assert sorted(map(tuple, EDGES.T.tolist())) == sorted(expected)


def attend_dynamically(x, weight, a):
    """Return GATv2 with a score for every pair, hidden where there is no edge."""
    h, hidden = x @ weight.mT, torch.full((N, N), -torch.inf)
    hidden[EDGES[1], EDGES[0]] = 0.0  # a row for each target
    pairs = F.leaky_relu(h[:, None] + h[:, :, None], 0.2) @ a[:, None, :, None]
    return (pairs[..., 0] + hidden).softmax(-1) @ h


@pytest.mark.parametrize("name", NEIGHBOR_LAYERS)
def test_a_layer_is_its_function_and_without_neighbors_an_mlp(name):
    with use_seed(0):
        model = GraphNetwork(NEIGHBOR_LAYERS[name], INPUTS, K, WIDTH, HEADS).eval()
    layer, x = model.first, draw(N, INPUTS)
    w = layer.weight
    expected = {
        "mean": lambda: attend_graph(x, EDGES, w, w.new_zeros(HEADS, 2, WIDTH)),
        "GAT": lambda: attend_graph(x, EDGES, w, layer.a),
        "GATv2": lambda: attend_dynamically(x, w, layer.a),
    }[name]()
    torch.testing.assert_close(layer(x, EDGES), torch.cat([*expected], dim=-1))
    own = layer.compute_weights(x, EDGES)
    torch.testing.assert_close(layer(x, EDGES), layer(x, EDGES, own))
    hidden = F.elu(x @ w.flatten(0, 1).T)
    found = model(x, join_selves(EDGES, N))
    torch.testing.assert_close(found, hidden @ model.second.weight[0].T)


V, IDS = 11, torch.randint(11, (2, 71), generator=torch.Generator().manual_seed(1))


def test_the_short_convolution_is_pytorchs():
    x, weight = draw(2, 7, 24), draw(KERNEL, 24, seed=1)
    padded, kernel = F.pad(x.mT, (KERNEL - 1, 0)), weight.flip(0).T[:, None]
    expected = F.conv1d(padded, kernel, groups=24).mT
    torch.testing.assert_close(convolve_causally(x, weight), expected)


@pytest.mark.parametrize("method", MIXERS)
def test_no_method_reads_later_positions_and_only_windows_forget(method):
    with use_seed(3):
        model = MixerModel(V, method, blocks=1)
    for changed, same in ((40, slice(0, 40)), (2, slice(WINDOW + KERNEL + 2, None))):
        other = IDS.clone()
        other[:, changed] = (other[:, changed] + 1) % V
        apart = (model(IDS) - model(other)).abs()
        forgets = changed == 40 or method == "window"
        assert (apart[:, same].max() < 1e-5) == forgets
        assert apart[:, changed].max() > 1e-3
    model(IDS).square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.abs().max() > 0, name


def test_all_methods_have_equally_many_parameters():
    counts = [count_parameters(MixerModel(V, method)) for method in MIXERS]
    assert max(counts) - min(counts) <= 2 * (2 * 64 + 1)


def test_softmax_mixers_are_attention_with_their_masks():
    C, H, T = 24, 3, 71
    x, masks = draw(2, T, C), {SoftmaxMixer(C, H): causal(T, T)}
    masks[WindowMixer(C, H, 5)] = window(T, T, 5)
    for mixer, mask in masks.items():
        inputs = mixer.project(x)
        torch.testing.assert_close(mixer.mix(*inputs, x), attend(*inputs, mask))


def test_a_gated_memory_that_keeps_everything_is_the_delta_rule():
    with use_seed(0):
        gated, plain = MIXERS["gated delta"](24, 3), MIXERS["delta"](24, 3)
    kept = {k: v for k, v in gated.state_dict().items() if "decay" not in k}
    plain.load_state_dict(kept)
    x = draw(2, 71, 24)
    assert not torch.allclose(gated(x), plain(x), atol=1e-4)
    with torch.no_grad():
        gated.decay.weight.zero_()
        gated.decay.bias.fill_(40.0)
    torch.testing.assert_close(gated(x), plain(x), atol=1e-5, rtol=1e-4)
