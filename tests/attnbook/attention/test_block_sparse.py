"""Block-sparse attention: what is skipped is neither read nor saved.

That it equals `attend` with the same mask is one line of test_reference.py.
"""

import pytest
import torch

from attnbook import masks
from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.sparse import attend_block_sparse
from attnbook.masks import rules
from attnbook.masks.layouts import bigbird_layout, cover_rule
from attnbook.profiling.allocations import count_saved_bytes

SIZE = 3
PATTERNS = {
    "window": rules.window(15, 15, 4),
    "dilated": rules.dilated(15, 15, 2, 5),
    "longformer": lambda b, h, q, k: (
        rules.two_sided_window(15, 15, 2)(b, h, q, k)
        | rules.global_tokens(15, 15, [0, 7])(b, h, q, k)
    ),
    "sinks": lambda b, h, q, k: (
        rules.window(15, 15, 3)(b, h, q, k) | rules.sinks(15, 15, 1)(b, h, q, k)
    ),
    "by head": lambda b, h, q, k: (k <= q) & (q - k <= h),
    "by sequence": lambda b, h, q, k: (k <= q) & (q - k <= b),
}


def draw(T=15, S=15, dtype=torch.float64):
    rng = torch.Generator().manual_seed(100 * T + S)
    shapes = (T, 5), (S, 5), (S, 7), (T, 7)
    return [torch.randn(2, 3, *s, generator=rng, dtype=dtype) for s in shapes]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_its_mask(name):
    *inputs, upstream = draw()
    inputs = [x.requires_grad_() for x in inputs]
    rule = PATTERNS[name]
    mask = masks.materialize_mask(rule, 15, 15, batch=2, heads=3)
    layout = mask.expand(2, 3, 15, 15).any(0).any(0)
    layout = layout.unflatten(1, (-1, SIZE)).any(-1)
    layout = layout.unflatten(0, (-1, SIZE)).any(1)
    expected = attend(*inputs, mask)
    found = attend_block_sparse(*inputs, layout, rule)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, upstream),
        torch.autograd.grad(expected, inputs, upstream),
    )


def test_a_layout_alone_is_its_mask():
    *inputs, _ = draw()
    layout = bigbird_layout(5, 1, 1, 1, seed=0)
    found = attend_block_sparse(*inputs, layout)
    torch.testing.assert_close(found, attend(*inputs, masks.block_sparse(layout, SIZE)))


def test_skipped_blocks_are_not_read_forwards_or_backwards():
    query, key, value, upstream = draw()
    rule = PATTERNS["window"]
    layout = cover_rule(rule, 15, 15, SIZE)
    inputs = [x.requires_grad_() for x in (query, key, value)]
    expected = attend(*inputs, masks.window(15, 15, 4))
    upstream[..., :9, :] = 0
    grads = torch.autograd.grad(expected, inputs, upstream)
    # The last two blocks of queries attend to keys from 6 on.
    spoiled = [x.detach().clone() for x in inputs]
    for x in spoiled[1:]:
        x[..., :6, :] = torch.nan
    spoiled = [x.requires_grad_() for x in spoiled]
    found = attend_block_sparse(*spoiled, layout, rule)
    torch.testing.assert_close(found[..., 9:, :], expected[..., 9:, :])
    again = torch.autograd.grad(found, spoiled, upstream)
    torch.testing.assert_close(again[0][..., 9:, :], grads[0][..., 9:, :])


def test_nothing_is_saved_for_the_backward_pass_but_the_inputs():
    *inputs, _ = draw()
    inputs = [x.requires_grad_() for x in inputs]
    layout = cover_rule(PATTERNS["window"], 15, 15, SIZE)

    def call():
        return attend_block_sparse(*inputs, layout, PATTERNS["window"])

    assert count_saved_bytes(call, inputs) == 0
    full = count_saved_bytes(lambda: attend(*inputs), inputs)
    assert full > 0


def test_no_tensor_is_larger_than_a_row_of_blocks(monkeypatch):
    seen = []

    def note(query, key, value, mask):
        seen.append((query.shape[-2], key.shape[-2], mask.shape[-1]))
        return attend(query, key, value, mask)

    monkeypatch.setattr("attnbook.attention.sparse.attend", note)
    T = 32 * 20
    rule = rules.window(T, T, 40)
    attend_block_sparse(*draw(T, T)[:3], cover_rule(rule, T, T, 32), rule)
    assert len(seen) == 20
    assert {rows for rows, _, _ in seen} == {32}
    assert max(keys for _, keys, _ in seen) == 3 * 32
    assert all(keys == columns for _, keys, columns in seen)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("T", "layout", "message"),
    [
        (
            13,
            torch.ones(5, 5).bool(),
            "5 by 5 blocks does not divide 13 queries and 13 keys",
        ),
        (
            15,
            torch.ones(5, 3).bool(),
            "5 by 3 blocks does not divide 15 queries and 15 keys",
        ),
        (
            15,
            torch.ones(5, 5).bool().tril(-1),
            "block 0 of the 5 blocks of queries attends to none of the 5",
        ),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(T, layout, message):
    with pytest.raises(ValueError, match=message):
        attend_block_sparse(*draw(T, T)[:3], layout)
