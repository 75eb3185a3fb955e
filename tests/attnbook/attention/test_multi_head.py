import pytest
import torch
from torch import nn
from torch.func import jvp, vmap

from attnbook.attention import multi_head as heads_module
from attnbook.attention.multi_head import (
    GroupedQueryAttention,
    MultiHeadAttention,
    attend_in_parts,
    merge_heads,
    multi_head,
    multi_head_loop,
    split_heads,
)
from attnbook.attention.scaled_dot_product import attend

B, H, T, S, D, M = 2, 3, 5, 7, 11, 13
C = H * D


def draws(*shapes, seed=0, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=rng, dtype=dtype) for s in shapes]


def pair(memory=None, bias=True, dtype=torch.float64):
    """Return the book's module and PyTorch's with the same weights."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(C, H, memory, bias=bias).to(dtype)
    more = {} if memory is None else {"kdim": memory, "vdim": memory}
    theirs = nn.MultiheadAttention(C, H, bias=bias, batch_first=True, **more)
    theirs = theirs.to(dtype)
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


def gradients_of(ours, theirs):
    """Yield each parameter's gradient in both modules."""
    parts = ours.query, ours.key, ours.value
    if theirs.in_proj_weight is None:
        names = "q_proj_weight", "k_proj_weight", "v_proj_weight"
        for part, name in zip(parts, names, strict=True):
            yield part.weight.grad, getattr(theirs, name).grad
    else:
        grads = torch.cat([p.weight.grad for p in parts])
        yield grads, theirs.in_proj_weight.grad
    yield ours.output.weight.grad, theirs.out_proj.weight.grad
    if theirs.in_proj_bias is not None:
        grads = torch.cat([p.bias.grad for p in parts])
        yield grads, theirs.in_proj_bias.grad
        yield ours.output.bias.grad, theirs.out_proj.bias.grad


def masks(kind, keys):
    """Return a mask, True = can attend, in which every query has a key."""
    rng = torch.Generator().manual_seed(1)
    shape = {"all heads": (B, 1, T, keys), "each head": (B, H, T, keys)}[kind]
    mask = torch.rand(shape, generator=rng) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize(
    ("bias", "masked", "need_weights"),
    [(True, None, True), (False, "all heads", True), (True, "each head", False)],
)
@pytest.mark.parametrize("kind", ["self", "cross", "cross, wider memory"])
def test_the_module_equals_pytorchs_module(kind, bias, masked, need_weights):
    width = M if "wider" in kind else C
    ours, theirs = pair(M if "wider" in kind else None, bias)
    x, memory, upstream, on_weights = draws(
        (B, T, C), (B, S, width), (B, T, C), (B, H, T, S)
    )
    if kind == "self":
        memory, on_weights = x, on_weights[..., :T]
    keys = memory.shape[1]
    mask = None if masked is None else masks(masked, keys)
    hidden = mask if mask is None else ~mask.expand(B, H, T, keys).flatten(0, 1)
    inputs = [v.requires_grad_() for v in {id(v): v for v in (x, memory)}.values()]

    got = ours(
        x,
        None if kind == "self" else memory,
        mask,
        need_weights=need_weights,
    )
    want = theirs(
        x,
        memory,
        memory,
        attn_mask=hidden,
        need_weights=need_weights,
        average_attn_weights=False,
    )
    if need_weights:
        torch.testing.assert_close(got[1], want[1])
        loss = (got[0] * upstream).sum() + (got[1] * on_weights).sum()
        true = (want[0] * upstream).sum() + (want[1] * on_weights).sum()
        got = got[0]
    else:
        loss, true = (got * upstream).sum(), (want[0] * upstream).sum()
    torch.testing.assert_close(got, want[0])
    (*found, _) = torch.autograd.grad(
        loss, [*inputs, ours.output.weight], retain_graph=True
    )
    (*known, _) = torch.autograd.grad(
        true, [*inputs, theirs.out_proj.weight], retain_graph=True
    )
    torch.testing.assert_close(found, known)
    loss.backward()
    true.backward()
    for one, other in gradients_of(ours, theirs):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("need_weights", [False, True])
def test_evaluation_without_gradients_gives_the_same_result(need_weights):
    """PyTorch takes another path there, and so may the book."""
    ours, theirs = pair(dtype=torch.float32)
    ours, theirs = ours.eval(), theirs.eval()
    (x,) = draws((B, T, C), dtype=torch.float32)
    with torch.inference_mode():
        got = ours(x, need_weights=need_weights)
        want = theirs(x, x, x, need_weights=need_weights, average_attn_weights=False)
    got, want = (got, want) if need_weights else ((got,), want[:1])
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


def matrices(query=C, memory=M, value=H * 2, output=17):
    x, m, *W = draws(
        (B, T, query), (B, S, memory), (C, query), (C, memory),
        (value, memory), (output, value),
    )  # fmt: skip
    return x, m, *W


@pytest.mark.parametrize("masked", [None, "all heads", "each head"])
def test_the_module_the_function_and_the_loop_agree(masked):
    mask = None if masked is None else masks(masked, S)
    some = [v.requires_grad_() for v in matrices()]
    one = multi_head(*some, H, mask)
    two = multi_head_loop(*some, H, mask)
    assert one.shape == (B, T, 17)
    torch.testing.assert_close(one, two)
    (upstream,) = draws(one.shape, seed=2)
    torch.testing.assert_close(
        torch.autograd.grad(one, some, upstream),
        torch.autograd.grad(two, some, upstream),
    )
    module = MultiHeadAttention(C, H, M, bias=False).double()
    x, memory = some[:2]
    parts = [module.query, module.key, module.value, module.output]
    torch.testing.assert_close(
        module(x, memory, mask),
        multi_head(x, memory, *(p.weight for p in parts), H, mask),
    )


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_a_query_without_keys_gets_the_output_bias(training, need_weights):
    ours, _ = pair()
    ours.train(training)
    (x,) = draws((B, T, C))
    mask = torch.ones(B, 1, T, T, dtype=torch.bool).tril()
    mask[1, :, 2] = False
    with torch.set_grad_enabled(training):
        output = ours(x.requires_grad_(training), mask=mask)
    torch.testing.assert_close(output[1, 2], ours.output.bias)
    if training:
        output.sum().backward()
        assert all(p.grad.isfinite().all() for p in ours.parameters())
        assert x.grad.isfinite().all()


def test_heads_are_consecutive_blocks_of_columns():
    (x,) = draws((B, T, C))
    split = split_heads(x, H)
    assert split.shape == (B, H, T, D)
    for h in range(H):
        assert torch.equal(split[:, h], x[..., h * D : (h + 1) * D])
    assert torch.equal(merge_heads(split), x)


def test_dropout_touches_training_only_and_not_the_weights_returned():
    ours = MultiHeadAttention(C, H, dropout=0.5).double()
    (x,) = draws((B, T, C))
    torch.manual_seed(0)
    dropped, weights = ours(x, need_weights=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    ours.eval()
    kept, same = ours(x, need_weights=True)
    torch.testing.assert_close(weights, same)
    torch.testing.assert_close(kept, ours(x))
    assert not torch.allclose(dropped, kept)


def test_all_of_the_weights_dropped_leaves_the_bias():
    """Dropout falls on the weights: nothing is left of the values."""
    ours = MultiHeadAttention(C, H, dropout=1.0).double()
    (x,) = draws((B, T, C))
    torch.testing.assert_close(ours(x), ours.output.bias.expand(B, T, C))


def test_dropout_keeps_the_mean_of_the_output():
    torch.manual_seed(0)
    ours = MultiHeadAttention(C, H, dropout=0.25).double()
    (x,) = draws((1, T, C))
    many = ours(x.expand(20000, T, C)).mean(0, keepdim=True)
    torch.testing.assert_close(many, ours.eval()(x), atol=5e-3, rtol=0)


def test_the_state_has_the_four_projections_and_nothing_else():
    names = MultiHeadAttention(C, H, M).state_dict()
    assert {*names} == {
        f"{part}.{what}"
        for part in ("query", "key", "value", "output")
        for what in ("weight", "bias")
    }


def test_inputs_are_not_changed():
    ours, _ = pair()
    x, memory = draws((B, T, C), (B, S, C))
    before = x.clone(), memory.clone()
    with torch.no_grad():
        ours.eval()(x, memory, masks("all heads", S))
    assert torch.equal(x, before[0])
    assert torch.equal(memory, before[1])


@pytest.mark.refusal
def test_a_width_that_does_not_divide_into_heads_is_refused():
    with pytest.raises(ValueError, match=r"33 columns .* into 4 heads"):
        split_heads(torch.zeros(B, T, C), 4)
    with pytest.raises(ValueError, match=r"33 columns .* into 0 heads"):
        split_heads(torch.zeros(B, T, C), 0)
    with pytest.raises(ValueError, match=r"33 columns .* into 4 heads"):
        MultiHeadAttention(C, 4)
    with pytest.raises(ValueError, match=r"33 columns .* into 0 heads"):
        MultiHeadAttention(C, 0)


@pytest.mark.refusal
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_mask_that_does_not_fit_is_refused(training, need_weights):
    ours = MultiHeadAttention(C, H).train(training)
    x = torch.zeros(B, T, C)
    with pytest.raises(ValueError, match=r"must be boolean.*float32"):
        ours(x, mask=torch.zeros(T, T), need_weights=need_weights)
    with pytest.raises(ValueError, match=r"\(5, 6\) does not broadcast to"):
        ours(
            x,
            mask=torch.ones(T, T + 1, dtype=torch.bool),
            need_weights=need_weights,
        )


@pytest.mark.parametrize("size", [1, T * S, 2 * T * S, 10**6])
def test_a_few_heads_at_a_time_equal_all_heads(size):
    query, key, value = draws((B, H, T, D), (B, H, S, D), (B, H, S, 3))
    torch.testing.assert_close(
        attend_in_parts(query, key, value, size), attend(query, key, value)
    )


@pytest.mark.parametrize(("batch", "keys"), [(0, S), (B, 0)])
def test_parts_of_nothing_equal_attention_to_nothing(batch, keys):
    query, key = draws((batch, H, T, D), (batch, H, keys, D))
    torch.testing.assert_close(
        attend_in_parts(query, key, key), attend(query, key, key)
    )


@pytest.fixture
def parts(monkeypatch):
    """Count the calls of `attend_in_parts` by MultiHeadAttention."""
    calls = []

    def count(*inputs):
        calls.append(1)
        return attend_in_parts(*inputs, size=1)

    monkeypatch.setattr(heads_module, "attend_in_parts", count)
    return calls


def test_evaluation_computes_parts_and_gives_the_same_output(parts):
    ours, theirs = pair()
    (x,) = draws((B, T, C))
    ours.eval()
    expected, weights = ours(x, need_weights=True)
    assert not parts and weights.shape == (B, H, T, T)
    with torch.no_grad():
        found = ours(x)
    assert len(parts) == 1
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found, theirs(x, x, x)[0])


def needs_weights(x):
    return {"need_weights": True}


def needs_a_mask(x):
    return {"mask": torch.ones(T, T, dtype=torch.bool)}


def needs_a_bias(x):
    return {"bias": torch.zeros(T, T, dtype=x.dtype)}


@pytest.mark.parametrize("need", [needs_weights, needs_a_mask, needs_a_bias])
def test_weights_masks_and_biases_are_computed_for_all_heads(need, parts):
    ours = MultiHeadAttention(C, H).double().eval()
    (x,) = draws((B, T, C))
    with torch.no_grad():
        ours(x, **need(x))
    assert not parts


def test_training_and_gradients_compute_all_heads(parts):
    ours = MultiHeadAttention(C, H, dropout=0.5).double()
    (x,) = draws((B, T, C))
    with torch.no_grad():
        ours(x)
    ours.eval()(x)
    assert not parts


@pytest.mark.parametrize("before", [True, False])
def test_a_hook_on_the_dropout_module_sees_the_weights_of_all_heads(before, parts):
    ours = MultiHeadAttention(C, H).double().eval()
    (x,) = draws((B, T, C))
    seen = []
    if before:
        hook = ours.drop.register_forward_pre_hook(
            lambda module, given: seen.append(given[0])
        )
    else:
        hook = ours.drop.register_forward_hook(
            lambda module, given, made: seen.append(made)
        )
    with torch.no_grad():
        ours(x)
        _, weights = ours(x, need_weights=True)
        assert not parts
        torch.testing.assert_close(seen, [weights, weights])
        hook.remove()
        ours(x)
    assert len(parts) == 1 and len(seen) == 2


def test_variants_compute_all_heads(parts):
    (x,) = draws((B, T, 4 * D))
    with torch.no_grad():
        GroupedQueryAttention(4 * D, 4, 2).double().eval()(x)
        MultiHeadAttention(4 * D, 4, groups=1).double().eval()(x)
    assert not parts


@pytest.mark.parametrize("with_gradients", [True, False])
def test_vmap_and_forward_mode_differentiation_work(with_gradients, parts):
    ours = MultiHeadAttention(C, H).double().eval()
    x, tangent = draws((4, B, T, C), (4, B, T, C))
    with torch.set_grad_enabled(with_gradients):
        many = vmap(ours)(x)
        _, slope = jvp(ours, (x[0],), (tangent[0],))
    torch.testing.assert_close(many, torch.stack([*map(ours, x)]))
    _, expected = torch.autograd.functional.jvp(ours, x[0], tangent[0])
    torch.testing.assert_close(slope, expected)
    assert bool(parts) != with_gradients
