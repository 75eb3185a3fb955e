"""Numbers and alarms about single heads, on layers whose truth is known."""

import pytest
import torch
from torch import nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.self_attention import causal_mask
from attnbook.diagnose.head_alarms import (
    HeadAlarm,
    compare_with_thresholds,
    find_head_alarms,
    measure_heads,
)
from attnbook.diagnose.recording import watch_heads
from attnbook.models.devices import use_seed
from attnbook.models.from_pytorch import copy_attention
from attnbook.models.hooks import ablate_heads

B, T, C, H = 2, 7, 15, 3
X = torch.randn(B, T, C, generator=torch.Generator().manual_seed(0))
MASK = causal_mask(T, T)


class Layer(nn.Module):
    """Causal attention, of this library or of PyTorch, as a model."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        if isinstance(self.attention, nn.MultiheadAttention):
            return self.attention(x, x, x, attn_mask=~MASK)[0]
        return self.attention(x, mask=MASK)


def make_pair():
    with use_seed(0):
        theirs = nn.MultiheadAttention(C, H, batch_first=True)
        nn.init.normal_(theirs.in_proj_bias)
    ours = MultiHeadAttention(C, H)
    copy_attention(ours, theirs)
    return Layer(ours).eval(), Layer(theirs).eval()


def measure(model, **settings):
    (numbers,) = measure_heads(model, lambda: model(X), **settings).values()
    return numbers


def alarm_names(model, thresholds):
    found = find_head_alarms(model, lambda: model(X), None, thresholds)
    assert all(x.layer == "attention" for x in found)
    return {(x.alarm, x.head) for x in found}


def test_pytorch_and_this_library_give_the_same_numbers():
    models = make_pair()
    ours, theirs = map(measure, models)
    before = models[0](X)
    for head, effect in enumerate(ours["effect"]):
        with ablate_heads(models[0], [(0, head)]):
            change = models[0](X) - before
        torch.testing.assert_close(effect, change.square().mean().sqrt() / before.std())
    real = torch.arange(T) < torch.tensor([7, 4])[:, None]
    padded = torch.where(real[..., None], X, 10 * X)
    first, second = (
        measure_heads(models[0], lambda x=x: models[0](x), real)["attention"]
        for x in (X, padded)
    )
    torch.testing.assert_close(first, second)
    assert {*ours} == {"similarity", "entropy", "first_weight", "output", "effect"}
    for name, values in ours.items():
        torch.testing.assert_close(values, theirs[name])
    for model in models:  # it stays as it was
        torch.testing.assert_close(model(X), before)
        assert not any(
            m._forward_hooks or m._forward_pre_hooks for m in model.modules()
        )


def test_a_pytorch_layer_of_another_form_is_measured():
    settings = {"kdim": 4, "vdim": 5, "bias": False}
    with use_seed(0):
        layer = nn.MultiheadAttention(C, H, **settings).eval()
    shapes = ((T, B, C), (4, B, 4), (4, B, 5))  # the batch is not first
    with watch_heads(layer) as kept:
        output, _ = layer(*(torch.ones(shape).cumsum(0).sin() for shape in shapes))
    _, ((weights, heads),) = kept[""]
    assert weights.shape == (B, H, T, 4)
    merged = layer.out_proj(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(merged, output.transpose(0, 1))


def test_each_alarm_is_raised_by_what_it_is_about():
    model, _ = make_pair()
    with torch.no_grad():
        model.attention.query.weight[:10] = 0.0
        model.attention.query.bias[:10] = 0.0
        model.attention.output.weight[:, 10:] = 0.0
    same = dict.fromkeys(("similar", "uniform"), 1 - 1e-5)
    none = dict.fromkeys(("small output", "no effect"), 0.0)
    assert alarm_names(model, same | none) == {
        *((alarm, head) for alarm in same for head in (0, 1)),
        *((alarm, 2) for alarm in none),
    }


def test_one_key_for_each_query_is_saturated_and_position_0_is_found():
    model, _ = make_pair()
    with torch.no_grad():
        model.attention.query.weight.mul_(1e4)
    assert len(alarm_names(model, {"saturated": 0.05})) == H
    sink = X.clone()
    sink[:, 0] = 100.0
    with torch.no_grad():
        for part in (model.attention.query, model.attention.key):
            part.weight.zero_()
            part.bias.fill_(1.0)
        model.attention.key.weight[:5] = 1.0  # head 0: larger keys, more weight
    found = find_head_alarms(model, lambda: model(sink), None, {"first position": 0.99})
    assert [(x.alarm, x.head) for x in found] == [("first position", 0)]
    assert found[0].value == pytest.approx(1.0)


def test_numbers_by_hand():
    class Fixed(MultiHeadAttention):
        def scores(self, query, key):
            rows = torch.tensor([[[0.5, 0.5], [0.5, 0.5]], [[1, 0], [0, 1]]])
            return rows.log()[None]

    layer = Fixed(4, 2)
    with torch.no_grad():
        layer.value.weight.copy_(torch.eye(4))
        layer.output.weight.copy_(torch.diag(torch.tensor([3.0, 3, 1, 1])))
        layer.value.bias.zero_()
    x = torch.ones(1, 2, 4)
    numbers = measure_heads(layer, lambda: layer(x), effects=False)[""]
    cosine = 0.5**0.5
    expected = {
        "similarity": [cosine, cosine],
        "entropy": [1.0, 0.0],
        "first_weight": [0.5, 0.5],
        "output": [1.5, 0.5],  # 3 √2 and √2, divided by their mean
    }
    assert {k: x.tolist() for k, x in numbers.items()} == {
        k: pytest.approx(x) for k, x in expected.items()
    }
    limits = {"uniform": 0.7, "saturated": -1.0, "no effect": 1.0}
    found = compare_with_thresholds({"a": numbers}, limits)
    assert found == [HeadAlarm("a", 0, "uniform", pytest.approx(1.0), 0.7)]


@pytest.mark.refusal
def test_what_cannot_be_measured_is_refused():
    model, _ = make_pair()

    def run():
        return model(X)

    with pytest.raises(ValueError, match=r"no alarm is named 'unifrom'.*simi"):
        find_head_alarms(model, run, None, {"unifrom": 0.5})
    with pytest.raises(ValueError, match=r"shape \(2, 6\).*have \(2, 7\)"):
        find_head_alarms(model, run, torch.ones(2, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="evaluation mode"):
        model.attention.drop.p = 0.5
        measure_heads(model.train(), run)
