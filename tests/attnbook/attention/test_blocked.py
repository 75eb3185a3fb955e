import pytest
import torch

from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.scaled_dot_product import attend


def drawn(T, S, heads=2):
    rng = torch.Generator().manual_seed(100 * T + S)
    shapes = (T, 5), (S, 5), (S, 7)
    return [
        torch.randn(2, heads, *s, generator=rng, dtype=torch.float64) for s in shapes
    ]


def last(T, S, size):
    own = torch.arange(S - T, S)[:, None]
    back = own - torch.arange(S)
    return (back >= 0) & (back < size)


@pytest.mark.parametrize(("size", "rows"), [(1, 3), (4, 1), (4, 8), (100, 100)])
@pytest.mark.parametrize(("T", "S"), [(13, 13), (3, 17), (17, 3)])
def test_chunked_attention_equals_the_reference(T, S, size, rows):
    inputs = [x.requires_grad_() for x in drawn(T, S)]
    mask = last(T, S, size)
    reference = attend(*inputs, mask)
    upstream = torch.randn_like(reference)
    expected = torch.autograd.grad(reference, inputs, upstream)
    for found in (
        attend_window(*inputs, size, rows=rows),
        attend_in_blocks(*inputs, mask, rows=rows),
    ):
        torch.testing.assert_close(found, reference)
        gradients = torch.autograd.grad(found, inputs, upstream)
        torch.testing.assert_close(gradients, expected)


@pytest.mark.parametrize("shape", [(17,), (1, 1), (11, 1), (2, 1, 1, 17)])
def test_a_mask_can_broadcast(shape):
    inputs = drawn(11, 17)
    rng = torch.Generator().manual_seed(0)
    mask = torch.rand(shape, generator=rng) < 0.5
    found = attend_in_blocks(*inputs, mask, rows=4)
    torch.testing.assert_close(found, attend(*inputs, mask))


def test_masked_out_blocks_are_not_read():
    query, key, value = drawn(12, 12)
    mask = last(12, 12, 4)
    expected = attend(query, key, value, mask)
    # The last chunk of 3 attends to keys 6 to 11: blocks 2 and 3.
    key[..., :6, :] = value[..., :6, :] = torch.nan
    for found in (
        attend_window(query, key, value, 4, rows=3),
        attend_in_blocks(query, key, value, mask, rows=3),
    ):
        torch.testing.assert_close(found[..., 9:, :], expected[..., 9:, :])


def test_window_attention_allocates_no_full_mask(monkeypatch):
    """No tensor is larger than a chunk of queries times its blocks of keys."""
    seen = []

    def noting(query, key, value, mask):
        seen.append(tuple(mask.shape))
        return attend(query, key, value, mask)

    monkeypatch.setattr("attnbook.attention.blocked.attend", noting)
    attend_window(*drawn(1000, 1000), size=16, rows=32)
    assert len(seen) == 32
    assert max(T * S for T, S in seen) <= 32 * (16 + 2 * 32)


def test_no_queries_or_no_keys_give_empty_or_zero_output():
    query, key, value = drawn(3, 5)
    none = torch.zeros(0, 5, dtype=torch.bool)
    for found in (
        attend_window(query[..., :0, :], key, value, 4),
        attend_in_blocks(query[..., :0, :], key, value, none),
    ):
        assert found.shape == (2, 2, 0, 7)
    found = attend_window(query, key[..., :0, :], value[..., :0, :], 4)
    assert torch.equal(found, torch.zeros(2, 2, 3, 7, dtype=torch.float64))


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "rows must be at least 1, not 0"),
        ({"size": 0}, "a window has at least 1 key, not 0"),
        ({"value": torch.zeros(2, 2, 4, 7)}, "5 keys but 4 values"),
    ],
)
def test_a_window_that_does_not_fit_is_refused(change, message):
    query, key, value = drawn(3, 5)
    given = {"query": query, "key": key, "value": value, "size": 4} | change
    with pytest.raises(ValueError, match=message):
        attend_window(**given)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3, 4).bool(), r"\(3, 4\) does not broadcast to 3 queries"),
        (torch.ones(3, 5), "must be boolean"),
        (torch.ones(7, 3, 5).bool(), r"\(7, 3, 5\) does not broadcast"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        attend_in_blocks(*drawn(3, 5), mask)
