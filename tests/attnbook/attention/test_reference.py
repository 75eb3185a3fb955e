"""One reference: every exact implementation of attention against `attend`.

Forwards and backwards with a random upstream gradient. A new implementation is one
line in IMPLEMENTATIONS, a new kind of mask one line in MASKS. Methods that compute
something else have a reference in their own tests.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from attnbook import masks
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.multi_head import (
    grouped_query,
    merge_heads,
    multi_head,
    multi_head_loop,
    split_heads,
)
from attnbook.attention.scaled_dot_product import (
    attend,
    attend_in_query_chunks,
)
from attnbook.attention.sparse import attend_block_sparse
from attnbook.flash import flash_attention
from attnbook.flash.decoding import attend_paged, attend_split_kv
from precision import DTYPES, assert_close_to, assert_equals_reference

B, H = 2, 3
WINDOW = 4


@dataclass(frozen=True)
class Case:
    """Shapes, a key of MASKS, about how large all scores are, and precisions."""

    T: int
    S: int
    D: int = 4
    E: int = 4
    mask: str = "none"
    offset: float = 0.0
    bias: bool = False
    strided: bool = False
    dtypes: tuple[torch.dtype, ...] = DTYPES[:1]


def empty_rows(case, rng):
    """About half of the keys; one query and one sequence without any."""
    mask = torch.rand(B, H, case.T, case.S, generator=rng) < 0.5
    mask[0, 1, case.T // 2] = False
    mask[1] = False
    return mask


def padding(case, rng):
    return masks.padding(torch.tensor([case.S, (case.S + 1) // 2]), case.S)


MASKS = {
    "none": lambda case, rng: None,
    "empty rows": empty_rows,
    "causal": lambda case, rng: masks.causal(case.T, case.S),
    "padding": padding,
    "causal and padding": lambda case, rng: (
        masks.causal(case.T, case.S) & padding(case, rng)
    ),
    "window": lambda case, rng: masks.window(case.T, case.S, WINDOW),
}
CASES = {
    "ragged, values wider": Case(13, 17, 5, 7),
    "large logits": Case(5, 7, 8, 8, offset=200.0, dtypes=DTYPES[1:2]),
    "one query, strided": Case(1, 9, strided=True),
    "empty rows": Case(6, 9, mask="empty rows", dtypes=DTYPES[::2]),
    "causal, more keys": Case(5, 11, 8, 8, "causal", dtypes=DTYPES[::3]),
    "causal, more queries": Case(7, 3, mask="causal"),
    "padding": Case(6, 7, mask="padding"),
    "causal and padding": Case(7, 7, 4, 5, "causal and padding"),
    "window, more keys": Case(5, 17, mask="window"),
    "bias and empty rows": Case(5, 7, mask="empty rows", bias=True),
}


# Implementations take query (B, H, T, D), key (B, H, S, D), value (B, H, S, E)
# and, if they know them, mask and bias, and give (B, H, T, E).
def one_by_one(query, key, value, mask=None, bias=None):
    """The equation, a query at a time, its visible keys alone."""
    B, H, T, D = query.shape
    shape = (B, H, T, key.shape[2])
    seen = torch.ones(shape).bool() if mask is None else mask.expand(shape)
    added = query.new_zeros(shape) if bias is None else bias.expand(shape)
    rows = []
    for b, h, t in product(range(B), range(H), range(T)):
        keys = seen[b, h, t].nonzero()[:, 0]
        scores = key[b, h, keys] @ (query[b, h, t] * D**-0.5)
        weights = (scores + added[b, h, t, keys]).softmax(-1)
        rows.append(weights @ value[b, h, keys])
    return torch.stack(rows).view(B, H, T, -1)


def torch_sdpa(query, key, value, mask=None, bias=None):
    # PyTorch has one argument for both: True = can attend, or a bias.
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def side_by_side(key, value):
    """Memory whose columns are the keys of all heads, then their values."""
    return torch.cat([merge_heads(key), merge_heads(value)], dim=-1)


def identities(query, key, value):
    """Projections that pick queries, keys and values out unchanged."""
    d, e = query.shape[1] * query.shape[3], value.shape[1] * value.shape[3]
    both = torch.eye(d + e, dtype=query.dtype)
    return both[:d, :d], both[:d], both[d:], both[d:, d:]


def with_heads(function):
    def call(query, key, value, mask=None):
        heads = query.shape[1]
        output = function(
            merge_heads(query),
            side_by_side(key, value),
            *identities(query, key, value),
            heads,
            mask,
        )
        return split_heads(output, heads)

    return call


def grouped(function, groups):
    """Heads of a group share key and value: give each group the same ones."""

    def call(query, key, value, mask=None):
        more = () if mask is None else (mask,)
        return function(query, key[:, :groups], value[:, :groups], *more)

    return call


def repeat_groups(groups):
    """The reference: each group's key and value, repeated for its heads."""

    def call(query, key, value, mask=None):
        each = query.shape[1] // groups
        key, value = (
            x[:, :groups].repeat_interleave(each, dim=1) for x in (key, value)
        )
        return attend(query, key, value, mask)

    return call


def in_blocks(query, key, value, mask=None):
    if mask is None:
        mask = torch.ones(1, 1, dtype=torch.bool)
    return attend_in_blocks(query, key, value, mask, rows=3)


def in_sparse_blocks(query, key, value, mask=None):
    """A layout of the blocks that the mask needs, and the mask inside them."""
    B, H, T, _ = query.shape
    S = key.shape[2]
    sizes = [n for n in range(2, T) if T % n == S % n == 0]
    size = min(sizes, default=1)
    seen = torch.ones(1, 1).bool() if mask is None else mask
    seen = seen.expand(B, H, T, S)
    needed = seen.any(0).any(0).unflatten(1, (-1, size)).any(-1)
    layout = needed.unflatten(0, (-1, size)).any(1)
    layout[:, 0] |= ~layout.any(1)  # a row of blocks has at least one
    rule = None if mask is None else lambda b, h, q, k: seen[b, h, q, k]
    return attend_block_sparse(query, key, value, layout, rule)


def in_window(query, key, value, mask=None):
    """It makes its own mask; the cases' is the same."""
    return attend_window(query, key, value, WINDOW, rows=3)


def in_query_chunks(query, key, value, mask=None):
    return attend_in_query_chunks(query, key, value, rows=3)


def flash(kind):
    """It makes its own masks of few words; the cases' are the same."""

    def call(query, key, value, mask=None):
        asked = {}
        if "causal" in kind:
            asked["causal"] = True
        if "padding" in kind:
            asked["key_lengths"] = mask[:, 0, -1].sum(-1)
        if "window" in kind:
            asked["window"] = WINDOW
        return flash_attention(query, key, value, **asked)

    return call


def decoded(function):
    """One query after the other; each attends to the first keys alone."""

    def call(query, key, value, mask=None):
        (B, _, T, _), S = query.shape, key.shape[2]
        if mask is None:
            mask = torch.ones(1, 1, T, S, dtype=torch.bool)
        lengths = mask.expand(B, 1, T, S)[:, 0].sum(-1).unbind(-1)
        queries = query.split(1, dim=2)
        outputs = [
            function(x, key, value, n) for x, n in zip(queries, lengths, strict=True)
        ]
        return torch.cat(outputs, dim=2)

    return call


def in_parts(query, key, value, lengths):
    return attend_split_kv(query, key, value, lengths, parts=2)


def in_pages(query, key, value, lengths):
    """The caches of all sequences in pages of two, in reverse order."""
    pools = [
        F.pad(x, (0, 0, 0, x.shape[2] % 2))
        .unflatten(2, (-1, 2))
        .transpose(1, 2)
        .flatten(0, 1)
        .flip(0)
        for x in (key, value)
    ]
    table = torch.arange(len(pools[0])).flip(0).view(len(query), -1)
    return attend_paged(query, *pools, table, lengths, parts=2)


@dataclass
class Implementation:
    """A function, what it can do, and how many groups share keys and values."""

    run: Callable
    bias: bool = False
    masks: tuple = tuple(MASKS)
    groups: int = H
    backward: bool = True  # whether it has gradients


LENGTHS = ("none", "causal", "padding", "causal and padding")
IMPLEMENTATIONS = {
    "one by one": Implementation(one_by_one, bias=True),
    "F.scaled_dot_product_attention": Implementation(torch_sdpa, bias=True),
    "multi-head loop": Implementation(with_heads(multi_head_loop)),
    "multi-head": Implementation(with_heads(multi_head)),
    "multi-query": Implementation(grouped(grouped_query, 1), groups=1),
    "attend_in_blocks": Implementation(in_blocks),
    "attend_block_sparse": Implementation(in_sparse_blocks),
    "attend_window": Implementation(in_window, masks=("window",)),
    "attend_in_query_chunks": Implementation(in_query_chunks, masks=("none",)),
    **{
        f"flash_attention, {kind}": Implementation(flash(kind), masks=(kind,))
        for kind in (*LENGTHS, "window")
    },
    "flash_attention, 1 group": Implementation(
        grouped(flash_attention, 1), masks=("none",), groups=1
    ),
    "split-KV": Implementation(decoded(in_parts), masks=LENGTHS, backward=False),
    "paged": Implementation(decoded(in_pages), masks=LENGTHS, backward=False),
}
RUNS = [
    pytest.param(
        name,
        title,
        dtype,
        id=f"{name}: {title}, {str(dtype)[6:]}",
        marks=() if dtype == case.dtypes[0] else pytest.mark.precision,
    )
    for (title, case), (name, made) in product(CASES.items(), IMPLEMENTATIONS.items())
    if case.mask in made.masks and (made.bias or not case.bias)
    for dtype in case.dtypes
]


def draw_case(title, dtype):
    """Return query, key, value and perhaps a bias; the mask; the upstream."""
    case = CASES[title]
    rng = torch.Generator().manual_seed(zlib.crc32(title.encode()))

    def normal(*shape):
        made = torch.randn(*shape, generator=rng, dtype=torch.float64)
        if case.strided:
            made = made.transpose(1, 2).contiguous().transpose(1, 2)
        return made.to(dtype)

    query = normal(B, H, case.T, case.D)
    key, value = normal(B, H, case.S, case.D), normal(B, H, case.S, case.E)
    # A coordinate that all queries, and all keys, have in common.
    query[..., 0] += case.offset**0.5 * case.D**0.5
    key[..., 0] += case.offset**0.5
    inputs = [query, key, value]
    if case.bias:
        inputs.append(normal(1, H, case.T, case.S))
    mask = MASKS[case.mask](case, rng)
    return inputs, mask, normal(B, H, case.T, case.E)


@pytest.mark.parametrize(("name", "title", "dtype"), RUNS)
def test_every_implementation_equals_the_reference(name, title, dtype):
    made = IMPLEMENTATIONS[name]
    reference = attend if made.groups == H else repeat_groups(made.groups)
    inputs, mask, upstream = draw_case(title, dtype)
    if not made.backward:
        truth = reference(*(x.double() for x in inputs), mask)
        return assert_close_to(made.run(*inputs, mask), truth, "output")

    def bind(function):
        return lambda query, key, value, *bias: function(query, key, value, mask, *bias)

    assert_equals_reference(bind(made.run), bind(reference), inputs, upstream)
