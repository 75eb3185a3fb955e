"""Divided attention equals that of one process: outputs, gradients, bytes.

The reference is in float64, by the reference implementation with grouped heads.
Ranks are threads here, under the check of shapes; test_processes.py runs processes.
"""

import pytest
import torch

from attnbook.attention.linear import attend_linear
from attnbook.attention.multi_head import grouped_query
from attnbook.parallel.plan import (
    PLANS as COUNTS,
)
from attnbook.parallel.plan import (
    count_decoding_traffic,
    count_grid_traffic,
    count_heads_traffic,
    count_state_traffic,
)
from attnbook.parallel.ranks import run_in_threads
from attnbook.parallel.ring import contiguous, join_shards
from attnbook.profiling.sizes import Sizes
from rank_work import (
    VALUE_WIDTH,
    WIDTH,
    Case,
    attend,
    attend_linearly,
    attend_with_some_heads,
    compare_heads,
    compare_with_one_device,
    decode,
    make_attention,
)

DIVIDED = ("ring", "all-to-all", "gathered keys")
CASES = [
    *(
        Case(plan, ranks, layout, length, causal, ragged)
        for plan in DIVIDED
        for ranks in (1, 2, 3, 4)
        for layout in ("contiguous", "zigzag", "striped")
        for length, causal, ragged in [(13, True, True), (24, False, False)]
    ),
    *(Case("ring", ranks, length=4, groups=3) for ranks in (3, 4)),
    *(Case("ring", ranks, groups=3, causal=False, ragged=True) for ranks in (2, 4)),
    *(Case("gathered keys", ranks, groups=1) for ranks in (2, 3)),
    # Fewer key heads than ranks: they are repeated.
    *(Case("all-to-all", ranks, groups=groups) for ranks, groups in [(4, 2), (3, 1)]),
    *(
        Case("grid", ranks, layout, length, groups=groups)
        for ranks, groups in [(2, 4), (4, 4), (4, 1)]
        for layout, length in [("zigzag", 13), ("contiguous", 24)]
    ),
]


def get_sizes(case):
    return Sizes(
        2,
        case.heads,
        case.length,
        case.length,
        WIDTH,
        VALUE_WIDTH,
        case.groups,
        itemsize=8,
    )


def count_traffic(case):
    if case.plan == "grid":
        return count_grid_traffic(get_sizes(case), case.ranks // 2, 2)
    return COUNTS[case.plan](get_sizes(case), case.ranks)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_gradients_and_bytes(case):
    found = run_in_threads(attend, case.ranks, case)
    compare_with_one_device(case, found)
    if case.length % case.ranks == 0:  # otherwise shards differ
        assert {sent for _, sent in found} == {count_traffic(case)}


@pytest.mark.parametrize(
    ("heads", "groups", "size"),
    [(12, 12, 1), (12, 12, 3), (12, 4, 4), (12, 2, 4), (12, 1, 3), (4, 2, 2)],
)
def test_heads_over_ranks(heads, groups, size):
    found = run_in_threads(attend_with_some_heads, size, make_attention(heads, groups))
    compare_heads(heads, groups, found)
    sizes = Sizes(2, heads, 5, 5, 24 // heads, G=groups, itemsize=8)
    wanted = count_heads_traffic(sizes, size)
    assert {row[-1] for row in found} == {(wanted.forward, wanted.backward)}


@pytest.mark.parametrize("counts", [[7], [3, 4], [5, 0, 2], [1, 2, 3, 1]])
@pytest.mark.parametrize("ragged", [False, True])
def test_decoding_with_a_divided_cache(counts, ragged):
    rng, size = torch.Generator().manual_seed(0), len(counts)
    query = torch.randn(2, 6, 3, WIDTH, generator=rng, dtype=torch.float64)
    keys = [torch.randn(2, 2, n, WIDTH, generator=rng).double() for n in counts]
    values = [torch.randn(2, 2, n, VALUE_WIDTH, generator=rng).double() for n in counts]
    ends = [torch.tensor([n, n // 2]) for n in counts]
    visible = [torch.arange(n) < e[:, None] for n, e in zip(counts, ends, strict=True)]
    mask = torch.cat(visible, dim=1)[:, None, None] if ragged else None
    wanted = grouped_query(query, torch.cat(keys, 2), torch.cat(values, 2), mask)
    found = run_in_threads(decode, size, query, keys, values, ends if ragged else None)
    sizes = Sizes(2, 6, 3, sum(counts), WIDTH, VALUE_WIDTH, 2, itemsize=8)
    for output, sent in found:
        torch.testing.assert_close(output, wanted)
        assert sent == count_decoding_traffic(sizes, size).forward


@pytest.mark.parametrize(("length", "size"), [(5, 1), (130, 2), (7, 3), (8, 4)])
def test_linear_attention_sends_states(length, size):
    rng = torch.Generator().manual_seed(0)
    widths = (WIDTH, WIDTH, VALUE_WIDTH, VALUE_WIDTH)
    *inputs, upstream = (
        torch.randn(2, 3, length, width, generator=rng, dtype=torch.float64)
        for width in widths
    )
    layout = contiguous(length, size)
    found = run_in_threads(attend_linearly, size, inputs, upstream, layout)
    whole = [x.clone().requires_grad_() for x in inputs]
    output = attend_linear(*whole, torch.ones(length, length).tril().bool())
    output.backward(upstream)
    parts = zip(*(tensors for tensors, _ in found), strict=True)
    joined = [join_shards(part, layout) for part in parts]
    torch.testing.assert_close(joined, [output.detach(), *(x.grad for x in whole)])
    sizes = Sizes(2, 3, length, length, WIDTH, VALUE_WIDTH, itemsize=8)
    wanted = count_state_traffic(sizes, size)
    assert {sent for _, sent in found} == {(wanted.forward, wanted.backward)}
