import pytest
import torch
from torch import nn

from attnbook.models.sequence_layers import (
    SEQUENCE_LAYERS,
    SelfAttentionLayer,
    compute_gradient_norms_at_ends,
    make_orthogonal_rnn,
)
from attnbook.records import read_record
from workshop.experiments.path_length import (
    SYMBOLS,
    WIDTH,
    RecallModel,
    measure_gradient_norms_at_ends,
)
from workshop.experiments.rnn_or_attention import count_flops


class Mean(nn.Module):
    """A layer whose last output is the mean of all positions."""

    def forward(self, x):
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None], None


class Echo(nn.Module):
    """A layer in which nothing reaches another position."""

    def forward(self, x):
        return 3 * x, None


def test_gradient_norms_at_both_ends_equal_the_values_by_hand():
    upstream = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    size = float(upstream.norm(dim=-1).mean())
    x = torch.zeros(2, 5, 3)
    first, last = compute_gradient_norms_at_ends(Mean(), x, upstream)
    assert first == pytest.approx(size / 5, rel=1e-5)
    assert last == pytest.approx(size / 5, rel=1e-5)
    first, last = compute_gradient_norms_at_ends(Echo(), x, upstream)
    assert first == 0
    assert last == pytest.approx(3 * size, rel=1e-5)
    assert not x.requires_grad


@pytest.mark.parametrize("kind", SEQUENCE_LAYERS)
def test_the_recorded_gradients_are_reproduced(kind):
    record = read_record("path_length")
    assert record["width"] == WIDTH
    for end, found in zip(
        ("first", "last"),
        measure_gradient_norms_at_ends(kind, 32, 1),
        strict=True,
    ):
        stored = record["results"][end][kind][record["lengths"].index(32)]
        assert found == pytest.approx(stored[1], rel=1e-3)


def test_the_global_random_state_is_unchanged():
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    measure_gradient_norms_at_ends("gru", 3, 1)
    assert torch.equal(torch.randn(3), expected)


def test_orthogonal_recurrent_weights_preserve_norms():
    matrix = make_orthogonal_rnn(7).weight_hh_l0
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(7))


def test_only_the_first_symbol_is_marked():
    torch.manual_seed(0)
    model = RecallModel("attention")
    text = torch.tensor([[3, 1, 4, 1, 5]])
    moved = torch.tensor([[3, 4, 1, 1, 5]])
    torch.testing.assert_close(model(text), model(moved))
    moved = torch.tensor([[1, 3, 4, 1, 5]])
    assert not torch.allclose(model(text), model(moved), atol=1e-3)
    assert model(text).shape == (1, SYMBOLS)


@pytest.mark.parametrize("length", [5, 64])
def test_counted_flops_equal_the_formulas(length):
    from workshop.experiments.rnn_or_attention import BATCH
    from workshop.experiments.rnn_or_attention import WIDTH as C

    assert count_flops(SEQUENCE_LAYERS["rnn"](C), length) == BATCH * 4 * length * C**2
    assert count_flops(SEQUENCE_LAYERS["gru"](C), length) == BATCH * 12 * length * C**2
    expected = BATCH * (6 * length * C**2 + 4 * length**2 * C)
    assert count_flops(SelfAttentionLayer(C), length) == expected


def test_the_recorded_times_are_complete():
    record = read_record("rnn_or_attention")
    lengths, found = record["lengths"], record["results"]
    for kind in "rnn", "gru", "attention":
        for way in "forward", "both":
            times = torch.tensor(found[f"{kind} {way}"])
            assert times.shape[0] == len(lengths)
            assert times.shape[1] >= 5
            assert (times > 0).all()
    C, batch = record["width"], record["batch"]
    assert found["counted"]["gru"] == [batch * 12 * n * C**2 for n in lengths]
