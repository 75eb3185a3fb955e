"""Our adapter called as transformers calls it; `make oracles` runs its models."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from attnbook.flash import flash_attention
from attnbook.flash.hugging_face import attention, register


def asking(causal):
    module = nn.Identity()
    module.is_causal = causal
    return module


def drawn():
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(2, h, 7, 4, generator=rng) for h in (6, 2, 2)]


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_flash_attention_with_their_axes(causal):
    layer, inputs = asking(causal), drawn()
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    output, weights = attention(layer, *inputs, mask.long(), scaling=0.3)
    expected = flash_attention(
        *inputs, causal=causal, key_lengths=torch.tensor([7, 4]), scale=0.3
    )
    assert weights is None
    assert torch.equal(output, expected.transpose(1, 2))
    assert output.is_contiguous()


def test_window_and_cap_are_passed_on():
    layer, inputs = asking(True), drawn()
    output, _ = attention(layer, *inputs, None, sliding_window=3, softcap=2.0)
    expected = flash_attention(*inputs, window=3, softcap=2.0)
    assert torch.equal(output, expected.transpose(1, 2))


def test_learned_sinks_take_part_in_the_softmax():
    layer, (query, key, value) = asking(True), drawn()
    sinks = torch.linspace(-1, 1, 6)
    output, _ = attention(layer, query, key, value, None, s_aux=sinks)
    # A first key that every query scores with the sink, and that has no value.
    scores = (query * 4**-0.5) @ key.repeat_interleave(3, dim=1).mT
    scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
    column = sinks[:, None, None].expand(2, 6, 7, 1)
    weights = torch.cat([column, scores], dim=-1).softmax(-1)[..., 1:]
    expected = weights @ value.repeat_interleave(3, dim=1)
    torch.testing.assert_close(output, expected.transpose(1, 2))


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("mask", "more", "message"),
    [
        (None, {"dropout": 0.1}, "must be 0 here, not 0.1"),
        (
            None,
            {"is_causal": False, "sliding_window": 3},
            "a window of 3 looks back, but the attention is not causal",
        ),
        (None, {"s_aux": torch.ones(5)}, r"each of 6 heads .* shape \(5,\)"),
        (
            torch.ones(2, 1, 7, 7),
            {},
            r"\(batch, 7\), but is \(2, 1, 7, 7\)",
        ),
        (
            torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 1]]),
            {},
            "sequence 1 of 5 tokens has some before its last",
        ),
    ],
)
def test_unsupported_options_are_refused(mask, more, message):
    layer = asking(True)
    with pytest.raises(ValueError, match=message):
        attention(layer, *drawn(), mask, **more)


def test_a_layer_reads_no_mask_that_is_not_on_the_cpu():
    """On the device "meta" there is nothing to read."""
    inputs = [x.to("meta") for x in drawn()]
    mask = torch.ones(2, 7, dtype=torch.long, device="meta")
    output, _ = attention(asking(True), *inputs, mask)
    assert output.shape == (2, 7, 6, 4)


@pytest.mark.refusal
def test_a_registered_model_checks_its_mask_once_before_its_layers(monkeypatch):
    """`transformers` is played by two registries and its mask function."""
    found = {}
    registry = SimpleNamespace(register=found.__setitem__)
    masking = SimpleNamespace(
        ALL_MASK_ATTENTION_FUNCTIONS={"flash_attention_2": lambda mask: mask},
        AttentionMaskInterface=SimpleNamespace(
            register=lambda name, make: found.update(mask=make)
        ),
    )
    whole = SimpleNamespace(AttentionInterface=registry, masking_utils=masking)
    monkeypatch.setitem(sys.modules, "transformers", whole)
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masking)
    register("ours")
    assert found["ours"] is attention
    assert found["mask"](None) is None
    right = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert torch.equal(found["mask"](right), right)
    with pytest.raises(ValueError, match="sequence 0 of 2 tokens"):
        found["mask"](right.flip(1))
