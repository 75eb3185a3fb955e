"""Faults on the paths that people use: padding on the left, packing, gradients.

Each kind was reported in public for other libraries; every test has a sound
model beside the faulty one.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.scaled_dot_product import attend
from attnbook.diagnose import (
    compare_with_reference,
    entropy,
    find_nonfinite_layer,
    measure_leak,
    measure_longer_padding,
    measure_packing_effect,
    measure_path_effects,
    normalized_entropy,
)
from attnbook.flash import flash_attention
from attnbook.flash.decoding import attend_split_kv
from attnbook.masks import causal, document, reset_positions
from attnbook.masks.conventions import convert_mask, read_mask

IDS = torch.tensor([[3, 4, 5, 6, 7, 8], [0, 0, 5, 6, 7, 8]])
LEFT = torch.tensor([6, 4])
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 2, 2]])


class Decoder(nn.Module):
    """One layer of causal attention; positions and mask as a test asks."""

    def __init__(self, place, mask):
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.table = nn.Embedding(11, 12), nn.Embedding(32, 12)
        self.attention = MultiHeadAttention(12, 3)
        self.place, self.mask = place, mask

    def forward(self, ids, documents=None):
        x = self.embed(ids) + self.table(self.place(ids, documents))
        past = causal(*[ids.shape[1]] * 2)
        return x + self.attention(x, mask=past & self.mask(ids, documents))


def count_all(ids, documents):
    return torch.arange(ids.shape[1])


def count_real(ids, documents):
    return ((ids != 0).cumsum(1) - 1).clamp(min=0)


def reset(ids, documents):
    return reset_positions(documents)


def keep_real(ids, documents):
    return (ids != 0)[:, None, None]


def keep_all(ids, documents):
    return torch.tensor(True)


def keep_own(ids, documents):
    return document(documents)


@pytest.mark.parametrize(
    ("place", "mask"),
    [(count_real, keep_real), (count_all, keep_real), (count_real, keep_all)],
    ids=["sound", "positions count padding", "padding is attended to"],
)
def test_padding_on_the_left_changes_only_a_faulty_model(place, mask):
    model = Decoder(place, mask).eval()
    found = measure_longer_padding(lambda x, n: model(x), IDS, LEFT, side="left").max()
    assert found < 1e-5 if (place, mask) == (count_real, keep_real) else found > 0.01


@pytest.mark.parametrize(
    ("place", "mask"),
    [(reset, keep_own), (reset, keep_all), (count_all, keep_own)],
    ids=["sound", "attention crosses documents", "positions run on"],
)
def test_packing_changes_only_a_faulty_model(place, mask):
    model = Decoder(place, mask).eval()
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3]])
    found = measure_packing_effect(model, ids, DOCUMENTS).max()
    assert found < 1e-5 if (place, mask) == (reset, keep_own) else found > 0.01


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            lambda m: measure_longer_padding(m, IDS, torch.tensor([6, 7])),
            r"2 lengths from 0 to 6, not \[6, 7\]",
        ),
        (
            lambda m: measure_longer_padding(m, IDS, LEFT, side="both"),
            "left or the right, not 'both'",
        ),
        (
            lambda m: measure_packing_effect(m, IDS, torch.zeros_like(IDS)),
            "change within a row; they change 0 times",
        ),
        (lambda m: measure_leak(lambda x: {"loss": 3.0}, IDS), "but is a dict"),
    ],
)
def test_what_is_not_ragged_or_holds_no_tensor_is_refused(test, message):
    with pytest.raises(ValueError, match=message):
        test(lambda x, _: F.one_hot(x, 11).float())


def nan_in_the_backward_pass(q, k, v, mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v


def no_gradient_of_the_value(q, k, v, mask=None):
    return attend(q, k, v.detach(), mask)


@pytest.mark.parametrize(
    ("function", "of"),
    [
        (nan_in_the_backward_pass, "a query that sees no key, gradient of the query"),
        (no_gradient_of_the_value, "no mask, gradient of the value"),
    ],
)
def test_a_wrong_gradient_is_named_though_the_output_is_right(function, of):
    assert max(compare_with_reference(function, gradients=False).values()) < 1e-4
    assert compare_with_reference(function)[of] > 0.01
    with pytest.raises(ValueError, match="gradients=False compares outputs only"):
        compare_with_reference(lambda *x, **more: function(*x, **more).detach())


def test_outputs_may_be_containers_of_tensors():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    for wrap in (lambda y: {"logits": y}, lambda y: (y, None)):
        found = measure_leak(lambda x, w=wrap: w(attend(x, x, x, causal(5, 5))), x)
        assert found.max() < 1e-6


class Wrapped(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.layer, self.wrap = nn.Linear(8, 8), wrap

    def forward(self, x):
        return self.wrap(self.layer(x))


@pytest.mark.parametrize("kind", ["encoder", "dict"])
def test_the_first_layer_that_is_not_finite_is_found_in_any_output(kind):
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    if kind == "encoder":
        block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        model, more = nn.TransformerEncoder(block, 2).eval(), {}
        more["src_key_padding_mask"] = torch.arange(5) >= torch.tensor([[5], [3]])
        wrong, name = model.layers[1].linear1, "layers.1.linear1"
    else:
        parts = Wrapped(lambda y: y), Wrapped(lambda y: {"y": y})
        model, more = nn.Sequential(*parts), {}
        wrong, name = model[1].layer, "1.layer"
    assert find_nonfinite_layer(model, x, **more) is None
    with torch.no_grad():
        wrong.weight[0, 0] = torch.inf
    assert find_nonfinite_layer(model, x, **more) == name


class TwoPaths(nn.Module):
    """Attention whose faults exist on one path only."""

    def __init__(self, fault):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.fault = fault

    def forward(self, x):
        output = self.attention(x, x, x, need_weights=False)[0]
        path = {"training": self.training, "gradients": torch.is_grad_enabled()}
        return output * 1.1 if path.get(self.fault) else output


class AskedLayer(nn.Module):
    def forward(self, x, need_weights=False):
        return (1.1 * x, x) if need_weights else x


def test_a_path_of_its_own_is_named():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    sound = measure_path_effects(TwoPaths(None), x)
    assert max(v for k, v in sound.items() if k != "bfloat16") < 1e-5
    assert 0 < sound["bfloat16"] < 0.1
    for fault in ("training", "gradients"):
        model = TwoPaths(fault).train()
        found = measure_path_effects(model, x)
        assert found[fault] > 0.01
        assert model.training and model.attention.dropout == 0.1
    asked = measure_path_effects(nn.Sequential(AskedLayer()), x)
    assert asked["weights"] > 0.01 and asked["training"] == 0


@pytest.mark.parametrize("measure", [entropy, normalized_entropy])
def test_an_entropy_can_be_a_penalty_on_masked_weights(measure):
    scores = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    more = (mask,) if measure is normalized_entropy else ()
    (found,) = torch.autograd.grad(measure(weights, *more).sum(), scores)
    kept = scores.detach()[:, :2].requires_grad_()
    (wanted,) = torch.autograd.grad(measure(kept.softmax(-1)).sum(), kept)
    torch.testing.assert_close(found[:, :2], wanted)
    assert found[0, 2] == 0


def test_a_bias_of_minus_infinity_empties_a_row_as_pytorch_has_it():
    inputs = [torch.ones(1, 1, n, 1, requires_grad=True) for n in (3, 2, 2)]
    inf = -torch.inf
    bias = torch.tensor([[0.0, inf], [inf, inf], [0.0, inf]])
    mask = torch.tensor([[True, True], [True, True], [False, True]])
    found = attend(*inputs, mask, bias=bias)
    assert found.flatten().tolist() == [1, 0, 0]
    found.sum().backward()
    assert all(x.grad.isfinite().all() for x in inputs)
    layer, x = MultiHeadAttention(4, 2), torch.randn(1, 3, 4)
    output, weights = layer(x, need_weights=True, bias=torch.full((3, 3), inf))
    assert weights.abs().max() == 0
    assert torch.equal(output, layer.output(torch.zeros_like(x)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_masks_of_the_lowest_number_are_read_and_so_are_their_sums(dtype):
    past, padding = causal(4, 4), torch.tensor([True, True, True, False])
    one, other = (
        convert_mask(x, given="keep", wanted="lowest", dtype=dtype)
        for x in (past, padding)
    )
    assert torch.equal(read_mask(one.float(), "lowest"), past)
    assert torch.equal(read_mask(one + other, "lowest"), past & padding)
    with pytest.raises(ValueError, match="but the mask holds -1e\\+04"):
        read_mask(one.float().masked_fill(~past, -1e4), "lowest")


@pytest.mark.parametrize("of", ["key", "value"])
def test_nan_behind_a_length_is_never_read(of):
    rng = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 1, n, 4, generator=rng) for n in (1, 3, 3))
    lengths = torch.tensor([1, 3])
    clean = flash_attention(query, key, value, key_lengths=lengths)
    {"key": key, "value": value}[of][0, :, 1:] = torch.nan
    inputs = [x.clone().requires_grad_() for x in (query, key, value)]
    found = flash_attention(*inputs, key_lengths=lengths)
    assert torch.equal(found, clean)
    found.sum().backward()
    assert all(x.grad.isfinite().all() for x in inputs)
    assert torch.allclose(attend_split_kv(query, key, value, lengths), clean)
