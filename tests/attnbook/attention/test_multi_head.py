import math

import pytest
import torch
from torch import nn

from attnbook.attention.multi_head import (
    GatedCrossAttention,
    GroupedQueryAttention,
    MultiHeadAttention,
    MultiHeadMemory,
    gated_cross_attention,
    grouped_query,
    multi_head,
    multi_head_loop,
    split_heads,
)
from attnbook.attention.scaled_dot_product import attend
from precision import assert_equals_reference, draw

B, H, T, S, D, M = 2, 3, 5, 7, 11, 13
C = H * D


def pair(memory=None, bias=True):
    """Return the book's module and PyTorch's with the same weights."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(C, H, memory, bias=bias).double()
    more = {} if memory is None else {"kdim": memory, "vdim": memory}
    theirs = nn.MultiheadAttention(C, H, bias=bias, batch_first=True, **more)
    theirs = theirs.double()
    parts = ours.query, ours.key, ours.value
    with torch.no_grad():
        if memory is None:
            theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        else:
            theirs.q_proj_weight.copy_(ours.query.weight)
            theirs.k_proj_weight.copy_(ours.key.weight)
            theirs.v_proj_weight.copy_(ours.value.weight)
        theirs.out_proj.weight.copy_(ours.output.weight)
        if bias:
            nn.init.normal_(ours.output.bias)
            theirs.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
            theirs.out_proj.bias.copy_(ours.output.bias)
    return ours, theirs


def list_gradients(ours, theirs):
    """Return the gradients of both modules' parameters."""
    parts = ours.query, ours.key, ours.value
    found = [torch.cat([p.weight.grad for p in parts]), ours.output.weight.grad]
    known = [theirs.in_proj_weight.grad, theirs.out_proj.weight.grad]
    if ours.output.bias is not None:
        found += [torch.cat([p.bias.grad for p in parts]), ours.output.bias.grad]
        known += [theirs.in_proj_bias.grad, theirs.out_proj.bias.grad]
    return found, known


def draw_mask(kind, keys):
    """Return a mask, True = can attend, in which every query has a key."""
    rng = torch.Generator().manual_seed(1)
    shape = {"all heads": (B, 1, T, keys), "each head": (B, H, T, keys)}[kind]
    mask = torch.rand(shape, generator=rng) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize(
    ("bias", "kind"), [(True, None), (False, "all heads"), (True, "each head")]
)
def test_self_attention_equals_pytorchs_module(bias, kind):
    ours, theirs = pair(bias=bias)
    x, upstream, on_weights = draw((B, T, C), (B, T, C), (B, H, T, T))
    mask = None if kind is None else draw_mask(kind, T)
    hidden = mask if mask is None else ~mask.expand(B, H, T, T).flatten(0, 1)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    found = ours(one, mask=mask, need_weights=True)
    known = theirs(two, two, two, attn_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(found, known)
    for output, weights in found, known:
        ((output * upstream).sum() + (weights * on_weights).sum()).backward()
    torch.testing.assert_close(one.grad, two.grad)
    torch.testing.assert_close(*list_gradients(ours, theirs))
    torch.testing.assert_close(ours(x, mask=mask), found[0])


def test_cross_attention_to_a_wider_memory_equals_pytorchs_module():
    ours, theirs = pair(M)
    *inputs, upstream = draw((B, T, C), (B, S, M), (B, T, C))
    assert_equals_reference(ours, lambda x, m: theirs(x, m, m)[0], inputs, upstream)


@pytest.mark.parametrize("kind", [None, "each head"])
def test_the_module_the_function_and_the_loop_agree(kind):
    mask = None if kind is None else draw_mask(kind, S)
    *inputs, upstream = draw(
        *((B, T, C), (B, S, M), (C, C), (C, M), (2 * H, M), (17, 2 * H)), (B, T, 17)
    )
    assert_equals_reference(
        lambda *x: multi_head(*x, H, mask),
        lambda *x: multi_head_loop(*x, H, mask),
        inputs,
        upstream,
    )
    module = MultiHeadAttention(C, H, M, bias=False).double()
    x, memory = inputs[:2]
    parts = [module.query, module.key, module.value, module.output]
    torch.testing.assert_close(
        module(x, memory, mask),
        multi_head(x, memory, *(p.weight for p in parts), H, mask),
    )


def test_a_query_without_keys_gets_the_output_bias():
    ours, _ = pair()
    (x,) = draw((B, T, C))
    mask = torch.ones(B, 1, T, T, dtype=torch.bool).tril()
    mask[1, :, 2] = False
    output = ours(x.requires_grad_(), mask=mask)
    torch.testing.assert_close(output[1, 2], ours.output.bias)
    output.sum().backward()
    assert all(p.grad.isfinite().all() for p in ours.parameters())
    assert x.grad.isfinite().all()


def test_dropout_touches_training_only_and_not_the_weights_returned():
    ours = MultiHeadAttention(C, H, dropout=0.5).double()
    (x,) = draw((B, T, C))
    torch.manual_seed(0)
    dropped, weights = ours(x, need_weights=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    ours.eval()
    kept, same = ours(x, need_weights=True)
    torch.testing.assert_close(weights, same)
    assert not torch.allclose(dropped, kept)
    # Where all weights are dropped, nothing is left of the values.
    ours = MultiHeadAttention(C, H, dropout=1.0).double()
    torch.testing.assert_close(ours(x), ours.output.bias.expand(B, T, C))


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: split_heads(x, 4), r"33 columns .* into 4 heads"),
        (lambda x: MultiHeadAttention(C, 0), r"33 columns .* into 0 heads"),
        (
            lambda x: MultiHeadAttention(C, H)(x, mask=torch.zeros(T, T)),
            r"must be boolean.*float32",
        ),
    ],
)
def test_heads_and_masks_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(B, T, C))


# Groups of heads that share keys and values.

HEADS, E = 6, 13


def repeat_rows(x, dim=1):
    """Each group's rows once a head."""
    return x.repeat_interleave(HEADS // x.shape[dim], dim=dim)


@pytest.mark.parametrize(
    ("groups", "shape"),
    [(1, None), (6, None), (2, (B, 1, T, S)), (2, (HEADS, T, S))],
)
def test_grouped_query_equals_attention_with_repeated_keys_and_values(groups, shape):
    *inputs, upstream = draw(
        *((B, HEADS, T, D), (B, groups, S, D), (B, groups, S, E)), (B, HEADS, T, E)
    )
    mask = None
    if shape:
        mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
        mask[..., 1, :] = False  # a query that sees nothing
        assert not grouped_query(*inputs, mask)[:, :, 1].any()
    assert_equals_reference(
        lambda *x: grouped_query(*x, mask),
        lambda q, k, v: attend(q, repeat_rows(k), repeat_rows(v), mask),
        inputs,
        upstream,
    )


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k, v: grouped_query(q, k, v), "6 heads do not divide into 4 groups"),
        (
            lambda q, k, v: GroupedQueryAttention(HEADS * D, HEADS, 0),
            "6 heads do not divide into 0 groups",
        ),
        (
            lambda q, k, v: grouped_query(q, k[:, :2], v[:, :1]),
            "2 groups of 7 but values 1 of 7",
        ),
    ],
)
def test_groups_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(*draw((B, HEADS, T, D), (B, 4, S, D), (B, 4, S, E)))


# The heads of a recurrent decoder.


@pytest.mark.parametrize("heads", [1, 3])
def test_the_heads_of_a_decoder_equal_multi_head_attention_with_padding(heads):
    query, memory = (x.float() for x in draw((2, 3, 12), (2, 5, 7)))
    lengths = torch.tensor([5, 2])
    torch.manual_seed(heads)
    look = MultiHeadMemory(12, 7, heads)
    context, weights = look(query, look.key(memory), memory, lengths)
    mask = (torch.arange(5) < lengths[:, None])[:, None, None]
    expected, each = look.attention(query, memory, mask, need_weights=True)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(weights, each.mean(1))


# A gate.

TEXT, IMAGE, QUERY, KEY, VALUE = draw((2, 3, 8), (2, 5, 7), (4, 8), (4, 7), (8, 7))


def test_tanh_of_the_gate_weighs_the_attention_and_0_changes_no_bit():
    attended = attend(TEXT @ QUERY.T, IMAGE @ KEY.T, IMAGE @ VALUE.T)
    gate = torch.tensor(0.3, dtype=torch.float64)
    found = gated_cross_attention(TEXT, IMAGE, QUERY, KEY, VALUE, gate)
    torch.testing.assert_close(found, TEXT + math.tanh(0.3) * attended)
    found = gated_cross_attention(TEXT, IMAGE, QUERY, KEY, VALUE, 0 * gate)
    assert torch.equal(found, TEXT)


def test_at_gate_0_the_layer_changes_nothing_and_only_the_gate_gets_a_gradient():
    layer = GatedCrossAttention(8, 2, 7).double()
    output = layer(TEXT, IMAGE)[0]
    assert torch.equal(output, TEXT)
    output.square().sum().backward()
    moved = [name for name, p in layer.named_parameters() if p.grad.any()]
    assert moved == ["gate"]
    with torch.no_grad():
        layer.gate.fill_(-0.7)
    added = layer.attention(layer.norm(TEXT), IMAGE)
    torch.testing.assert_close(layer(TEXT, IMAGE)[0], TEXT - math.tanh(0.7) * added)


@pytest.mark.refusal
def test_gated_projections_that_do_not_fit_are_refused():
    gate = torch.tensor(0.0)
    with pytest.raises(ValueError, match="width 6 cannot be added to text of width 8"):
        gated_cross_attention(TEXT, IMAGE, QUERY, KEY, VALUE[:6], gate)
    with pytest.raises(ValueError, match="W_key takes width 6 but gets 7"):
        gated_cross_attention(TEXT, IMAGE, QUERY, KEY[:, :6], VALUE, gate)
