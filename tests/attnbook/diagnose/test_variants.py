"""Faults on the paths that people use: padding on the left, packing, gradients.

Each kind was reported in public for other libraries; every test has a sound
model beside the faulty one.
"""

from types import SimpleNamespace

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
    measure_batch_effect,
    measure_leak,
    measure_longer_padding,
    measure_packing_effect,
    measure_padding_effect,
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


def keep_real(ids, documents):
    return (ids != 0)[:, None, None]


def keep_all(ids, documents):
    return torch.tensor(True)


@pytest.mark.parametrize(
    ("place", "mask", "sound"),
    [
        (count_real, keep_real, True),
        (count_all, keep_real, False),
        (count_real, keep_all, False),
    ],
    ids=["sound", "positions count padding", "padding is attended to"],
)
def test_padding_on_the_left_changes_only_a_faulty_model(place, mask, sound):
    model = Decoder(place, mask).eval()
    found = measure_longer_padding(lambda x, n: model(x), IDS, LEFT, side="left")
    assert bool(found.max() < 1e-5) == sound
    assert sound or found.max() > 0.01


def test_the_content_of_padding_on_the_left_changes_only_a_faulty_model():
    x = torch.randn(2, 6, 12, generator=torch.Generator().manual_seed(0))
    kept = (torch.arange(6).flip(0) < LEFT[:, None])[:, None, None]

    def sound(x, lengths):
        return attend(x[:, None], x[:, None], x[:, None], kept)[:, 0]

    def faulty(x, lengths):
        return attend(x, x, x)

    assert measure_padding_effect(sound, x, LEFT, side="left").max() < 1e-6
    assert measure_padding_effect(faulty, x, LEFT, side="left")[1] > 0.01


@pytest.mark.parametrize(
    ("place", "mask", "sound"),
    [
        (
            lambda ids, documents: reset_positions(documents),
            lambda ids, documents: document(documents),
            True,
        ),
        (lambda ids, documents: reset_positions(documents), keep_all, False),
        (count_all, lambda ids, documents: document(documents), False),
    ],
    ids=["sound", "attention crosses documents", "positions run on"],
)
def test_packing_changes_only_a_faulty_model(place, mask, sound):
    model = Decoder(place, mask).eval()
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3]])
    found = measure_packing_effect(model, ids, DOCUMENTS)
    assert bool(found.max() < 1e-5) == sound
    assert sound or found.max() > 0.01


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


def without_gradient(q, k, v, mask=None):
    return attend(q, k, v, mask).detach()


def nan_in_the_backward_pass(q, k, v, mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v


def half_the_gradient_of_the_key(q, k, v, mask=None):
    return attend(q, (k + k.detach()) / 2, v, mask)


def no_gradient_of_the_value(q, k, v, mask=None):
    return attend(q, k, v.detach(), mask)


@pytest.mark.parametrize(
    ("function", "of"),
    [
        (nan_in_the_backward_pass, "a query that sees no key, gradient of the query"),
        (half_the_gradient_of_the_key, "a mask, gradient of the key"),
        (no_gradient_of_the_value, "no mask, gradient of the value"),
    ],
)
def test_a_wrong_gradient_is_named_though_the_output_is_right(function, of):
    assert max(compare_with_reference(function, gradients=False).values()) < 1e-4
    assert compare_with_reference(function)[of] > 0.01


def test_a_function_without_gradients_is_told_so():
    with pytest.raises(ValueError, match="gradients=False compares outputs only"):
        compare_with_reference(without_gradient)


def test_inputs_are_drawn_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        found = compare_with_reference(attend)
    assert max(found.values()) == 0


def test_outputs_may_be_containers_of_tensors():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    for wrap in (lambda y: {"logits": y}, lambda y: (y, None), lambda y: [y]):
        found = measure_leak(lambda x, w=wrap: w(attend(x, x, x, causal(5, 5))), x)
        assert found.max() < 1e-6
        assert measure_batch_effect(lambda x, w=wrap: w(x + x.mean(0)), x).min() > 0.01


class Wrapped(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.layer, self.wrap = nn.Linear(8, 8), wrap

    def forward(self, x):
        return self.wrap(self.layer(x))


@pytest.mark.parametrize("kind", ["encoder", "dict", "nested"])
def test_the_first_layer_that_is_not_finite_is_found_in_any_output(kind):
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    if kind == "encoder":
        block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        model, more = nn.TransformerEncoder(block, 2).eval(), {}
        more["src_key_padding_mask"] = torch.arange(5) >= torch.tensor([[5], [3]])
        wrong, name = model.layers[1].linear1, "layers.1.linear1"
    else:
        nest = torch.nested.nested_tensor
        wrap = {"dict": lambda y: {"y": y}, "nested": lambda y: nest([*y])}[kind]
        model, more = nn.Sequential(Wrapped(lambda y: y), Wrapped(wrap)), {}
        wrong, name = model[1].layer, "1.layer"
    assert find_nonfinite_layer(model, x, **more) is None
    with torch.no_grad():
        wrong.weight[0, 0] = torch.inf
    assert find_nonfinite_layer(model, x, **more) == name


class TwoPaths(nn.Module):
    """Attention whose faults exist on one path only."""

    def __init__(self, fault):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.fault = fault

    def forward(self, x):
        output = self.attention(x, x, x, need_weights=False)[0]
        if self.fault == "training" and self.training:
            output = output * 1.1
        if self.fault == "gradients" and torch.is_grad_enabled():
            output = output * 1.1
        return output


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


@pytest.mark.parametrize("masked", [False, True])
def test_a_bias_of_minus_infinity_empties_a_row_as_pytorch_has_it(masked):
    query, key, value = (torch.ones(1, 1, n, 1, requires_grad=True) for n in (3, 2, 2))
    inf = -torch.inf
    bias = torch.tensor([[0.0, inf], [inf, inf], [0.0, inf]])
    mask = torch.tensor([[True, True], [True, True], [False, True]]) if masked else None
    found = attend(query, key, value, mask, bias=bias)
    assert found.flatten().tolist() == [1, 0, 0 if masked else 1]
    found.sum().backward()
    assert all(x.grad.isfinite().all() for x in (query, key, value))
    layer = MultiHeadAttention(4, 2)
    x = torch.randn(1, 3, 4)
    output, weights = layer(x, need_weights=True, bias=torch.full((3, 3), inf))
    assert weights.abs().max() == 0
    assert torch.equal(output, layer.output(torch.zeros_like(x)))


@pytest.mark.parametrize("of", ["key", "value", "both"])
def test_nan_behind_a_length_is_never_read(of):
    rng = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 1, n, 4, generator=rng) for n in (1, 3, 3))
    lengths = torch.tensor([1, 3])
    clean = flash_attention(query, key, value, key_lengths=lengths)
    for x in {"key": [key], "value": [value], "both": [key, value]}[of]:
        x[0, :, 1:] = torch.nan
    inputs = [x.clone().requires_grad_() for x in (query, key, value)]
    found = flash_attention(*inputs, key_lengths=lengths)
    assert torch.equal(found, clean)
    found.sum().backward()
    assert all(x.grad.isfinite().all() for x in inputs)
    assert torch.allclose(attend_split_kv(query, key, value, lengths), clean)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_masks_of_the_lowest_number_are_read_and_so_are_their_sums(dtype):
    past = causal(4, 4)
    one = convert_mask(past, given="keep", wanted="lowest", dtype=dtype)
    assert one.dtype == dtype and one.isfinite().all()
    assert torch.equal(read_mask(one, "lowest"), past)
    assert torch.equal(read_mask(one.float(), "lowest"), past)
    padding = torch.tensor([True, True, True, False])
    both = one + convert_mask(padding, given="keep", wanted="lowest", dtype=dtype)
    assert torch.equal(read_mask(both, "lowest"), past & padding)
    with pytest.raises(ValueError, match="but the mask holds -1e\\+04"):
        read_mask(one.float().masked_fill(~past, -1e4), "lowest")


def test_fields_of_a_model_output_are_found():
    output = SimpleNamespace(logits=torch.ones(1, 2, 3))
    with pytest.raises(ValueError, match="SimpleNamespace without any"):
        measure_leak(lambda x: output, torch.tensor([[1, 2]]))
