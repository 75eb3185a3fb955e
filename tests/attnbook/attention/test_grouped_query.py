import pytest
import torch

from attnbook.attention.multi_head import (
    GroupedQueryAttention,
    MultiHeadAttention,
    grouped_query,
)
from attnbook.attention.scaled_dot_product import attend

B, H, T, S, D, E = 2, 6, 5, 7, 11, 13
GROUPS = (1, 2, 3, 6)


def draws(*shapes, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes]


def repeated(x, dim=1):
    """Each group's rows once a head."""
    return x.repeat_interleave(H // x.shape[dim], dim=dim)


MASKS = {
    "none": None,
    "one for all": (T, S),
    "each sentence": (B, 1, T, S),
    "each head": (H, T, S),
}


@pytest.mark.parametrize(
    ("groups", "kind"), [*((2, kind) for kind in MASKS), *((n, "none") for n in (1, 6))]
)
def test_grouped_query_equals_attention_with_repeated_keys_and_values(groups, kind):
    query, key, value, upstream = draws(
        (B, H, T, D), (B, groups, S, D), (B, groups, S, E), (B, H, T, E)
    )
    mask = None
    if MASKS[kind]:
        rng = torch.Generator().manual_seed(1)
        mask = torch.rand(MASKS[kind], generator=rng) < 0.5
        mask[..., 1, :] = False  # a query that sees nothing
    inputs = [x.requires_grad_() for x in (query, key, value)]
    got = grouped_query(*inputs, mask)
    want = attend(query, repeated(key), repeated(value), mask)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(
        torch.autograd.grad(got, inputs, upstream),
        torch.autograd.grad(want, inputs, upstream),
    )
    if mask is not None:
        assert not got[:, :, 1].any()


def test_consecutive_heads_share_a_group():
    query, key, value = draws((B, H, T, D), (B, 2, S, D), (B, 2, S, E))
    output = grouped_query(query, key, value)
    for h in range(H):
        g = 0 if h < 3 else 1
        torch.testing.assert_close(
            output[:, h], attend(query[:, h], key[:, g], value[:, g])
        )


@pytest.mark.parametrize(("groups", "bias"), [(1, True), (3, False), (6, True)])
def test_the_module_is_multi_head_attention_with_repeated_rows(groups, bias):
    C = H * D
    torch.manual_seed(0)
    ours = GroupedQueryAttention(C, H, groups, bias).double()
    whole = MultiHeadAttention(C, H, bias=bias).double()
    with torch.no_grad():
        for name, part in ours.named_parameters():
            wide = part
            if name.startswith(("key", "value")):
                wide = part.unflatten(0, (groups, D))
                wide = repeated(wide, dim=0).flatten(0, 1)
            whole.get_parameter(name).copy_(wide)
    x, memory, upstream = draws((B, T, C), (B, S, C), (B, T, C))
    mask = torch.ones(T, S, dtype=torch.bool).tril(1)
    for inputs, more in (([x], {}), ([x, memory], {"mask": mask})):
        inputs = [v.clone().requires_grad_() for v in inputs]
        got, want = ours(*inputs, **more), whole(*inputs, **more)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(
            torch.autograd.grad(got, inputs, upstream),
            torch.autograd.grad(want, inputs, upstream),
        )


def test_fewer_groups_have_fewer_parameters():
    C = H * D
    for groups in GROUPS:
        ours = GroupedQueryAttention(C, H, groups, bias=False)
        assert sum(p.numel() for p in ours.parameters()) == (
            2 * C * C + 2 * C * groups * D
        )


def test_keys_and_values_are_not_repeated_in_memory():
    """Keys and values are stored once a group, also for the backward pass."""
    query, key, value = draws((B, H, T, D), (B, 1, 97, D), (B, 1, 97, E))
    stores = {}

    def note(x):
        stores[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    inputs = [x.requires_grad_() for x in (query, key, value)]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        output = grouped_query(*inputs)
    kept = sum(stores.values())
    scores = B * H * T * 97
    once = sum(x.numel() for x in inputs) + query.numel()
    assert output.shape == (B, H, T, E)
    assert kept <= 8 * (scores + once + B * 97 * (D + E))


@pytest.mark.refusal
def test_heads_that_do_not_divide_raise_an_error():
    query, key, value = draws((B, H, T, D), (B, 4, S, D), (B, 4, S, E))
    with pytest.raises(ValueError, match="6 heads do not divide into 4 groups"):
        grouped_query(query, key, value)
    with pytest.raises(ValueError, match="6 heads do not divide into 4 groups"):
        GroupedQueryAttention(H * D, H, 4)
    with pytest.raises(ValueError, match="6 heads do not divide into 0 groups"):
        GroupedQueryAttention(H * D, H, 0)
    with pytest.raises(ValueError, match=r"66 columns do not .* into 5 heads"):
        GroupedQueryAttention(H * D, 5, 1)
    with pytest.raises(ValueError, match="2 groups of 7 but values 1 of 7"):
        grouped_query(query, key[:, :2], value[:, :1])
    with pytest.raises(ValueError, match="queries are 11 wide but keys are 13"):
        grouped_query(query, value[:, :3], value[:, :3])
    with pytest.raises(ValueError, match=r"\(3, 1, 1\) does not broadcast to"):
        mask = torch.ones(3, 1, 1, dtype=torch.bool)
        grouped_query(query, key[:, :3], value[:, :3], mask)
