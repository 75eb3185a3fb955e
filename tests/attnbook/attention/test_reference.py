"""One reference: every implementation of attention against `attend`.

Forwards and backwards with a random upstream gradient, in four precisions,
within the error budget of `attnbook.attention.error_budget`, which is derived
and holds on any machine. A new implementation is one line in IMPLEMENTATIONS; a
new kind of mask is one line in MASKS. What another library computes differently
is listed in EXCEPTIONS with its reason, and a test shows that it still does.
The budgets are tight: every implementation in `wrong_attention` exceeds them
five times.

`make margins` runs this file, which prints two tables: the
largest share of its budget that each implementation uses, and for each family
of cases and each precision the tightest right and the closest wrong
implementation.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook import masks
from attnbook.attention.block_sparse import attend_block_sparse
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.error_budget import (
    Bounded,
    error_budget,
    share_of_budget,
)
from attnbook.attention.gradient import attend_gradient
from attnbook.attention.grouped_query import grouped_query
from attnbook.attention.local import GlobalAttention
from attnbook.attention.luong import DotScore
from attnbook.attention.multi_head import (
    MultiHeadAttention,
    merge_heads,
    multi_head,
    multi_head_loop,
    split_heads,
)
from attnbook.attention.query_chunks import attend_in_query_chunks
from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import flash_attention
from attnbook.flash.decoding import attend_paged, attend_split_kv
from attnbook.models.transformer_blocks import DecoderBlock, EncoderBlock
from attnbook.training.progress import make_progress_bar
from wrong_attention import WRONG

mpmath.mp.dps = 40
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """Shapes, and what makes them hard.

    Attributes:
        T, S, D, E: queries, keys, width of query and key, width of values.
        mask: a key of MASKS.
        spread: about how far apart the scores are.
        offset: about how large all of them are.
        bias: whether a bias is added.
        strided: whether the inputs are transposed views.
    """

    T: int
    S: int
    D: int
    E: int
    mask: str = "none"
    spread: float = 1.0
    offset: float = 0.0
    bias: bool = False
    strided: bool = False

    B = 2
    H = 3


def at_random(case, seed):
    """About half of the keys, at least one a query."""
    mask = torch.rand(2, 3, case.T, case.S, generator=seed) < 0.5
    mask[..., 0] |= ~mask.any(-1)
    return mask


def some_rows_empty(case, seed):
    mask = at_random(case, seed)
    mask[0, 1, case.T // 2] = False
    mask[1] = False
    return mask


def lengths(case):
    return torch.tensor([case.S, (case.S + 1) // 2])


def documents(case, seed):
    """Two texts in a row, and three in the other."""
    ends = torch.tensor([[2, case.S], [1, case.S // 2]])
    places = torch.arange(case.S)[:, None]
    return masks.document((places >= ends[:, None]).sum(-1))


def blocks(case, seed):
    """A diagonal of blocks of 3, and the first column of blocks."""
    layout = torch.eye(case.T // 3, case.S // 3, dtype=torch.bool)
    layout[:, 0] = True
    return masks.block_sparse(layout, size=3)


SIZE = 4

MASKS = {
    "none": lambda case, seed: None,
    "at random": at_random,
    "empty rows": some_rows_empty,
    "causal": lambda case, seed: masks.causal(case.T, case.S),
    "padding": lambda case, seed: masks.padding(lengths(case), case.S),
    "causal and padding": lambda case, seed: (
        masks.causal(case.T, case.S) & masks.padding(lengths(case), case.S)
    ),
    "window": lambda case, seed: masks.window(case.T, case.S, SIZE),
    "window and sinks": lambda case, seed: (
        masks.window(case.T, case.S, 2) | masks.sinks(case.T, case.S, 2)
    ),
    "dilated": lambda case, seed: masks.dilated(case.T, case.S, 3, step=2),
    "prefix": lambda case, seed: masks.prefix(case.T, case.S, lengths(case)),
    "documents": documents,
    "blocks": blocks,
    "not causal": lambda case, seed: ~masks.causal(case.T, case.S),
}
CASES = {
    "as many queries as keys": Case(5, 5, 4, 4),
    "more keys than queries": Case(3, 7, 4, 4),
    "more queries than keys": Case(11, 5, 8, 8),
    "values wider than keys": Case(3, 5, 4, 7),
    "odd everything": Case(13, 17, 5, 5),
    "one query": Case(1, 9, 4, 4),
    "one key": Case(5, 1, 4, 4),
    "one of each, one wide": Case(1, 1, 1, 1),
    "logits far apart": Case(5, 7, 8, 8, spread=8.0),
    "large logits": Case(5, 7, 8, 8, offset=200.0),
    "large negative logits": Case(5, 7, 8, 8, offset=-200.0),
    "a mask at random": Case(5, 7, 4, 4, "at random"),
    "a mask at random, values wider": Case(5, 7, 4, 9, "at random"),
    "padding": Case(6, 7, 4, 4, "padding"),
    "empty rows": Case(5, 7, 4, 4, "empty rows"),
    "empty rows and large logits": Case(5, 7, 4, 4, "empty rows", offset=200.0),
    "a bias": Case(5, 7, 4, 4, bias=True),
    "a bias and a mask": Case(5, 7, 4, 4, "at random", bias=True),
    "a bias and empty rows": Case(5, 7, 4, 4, "empty rows", bias=True),
    "strided inputs": Case(5, 7, 4, 4, strided=True),
    "strided inputs, a mask": Case(5, 7, 4, 4, "at random", strided=True),
    "many keys": Case(4, 301, 16, 16),
    "causal": Case(7, 7, 4, 5, "causal"),
    "causal, more keys than queries": Case(5, 11, 8, 8, "causal"),
    "causal, more queries than keys": Case(7, 3, 4, 4, "causal"),
    "causal, one query": Case(1, 7, 4, 4, "causal"),
    "causal, a bias, large logits": Case(5, 7, 4, 4, "causal", offset=200.0, bias=True),
    "causal and padding": Case(7, 7, 4, 5, "causal and padding"),
    "the future alone": Case(7, 7, 4, 4, "not causal"),
    "a window and sinks": Case(7, 11, 4, 4, "window and sinks"),
    "a dilated window": Case(11, 11, 4, 4, "dilated"),
    "a prefix": Case(7, 7, 4, 5, "prefix"),
    "documents": Case(11, 11, 4, 5, "documents"),
    "blocks": Case(6, 9, 4, 5, "blocks"),
    "few keys": Case(41, 2, 4, 2),
    "few keys, values one wide": Case(41, 2, 4, 1),
    "few keys, a mask": Case(41, 3, 4, 2, "at random"),
    "few keys, a bias": Case(41, 3, 4, 2, bias=True),
    "few queries": Case(2, 41, 4, 2),
    "few queries, a mask": Case(2, 41, 4, 2, "at random"),
    "few queries, a bias": Case(2, 41, 4, 2, bias=True),
    "a window": Case(13, 13, 4, 5, "window"),
    "a window, more keys than queries": Case(5, 17, 4, 4, "window"),
    "a window, more queries than keys": Case(11, 4, 4, 4, "window"),
}


def families(case):
    """Return what a case is about; wrong implementations say where they are."""
    masked = case.mask != "none"
    empty = case.mask in ("empty rows", "not causal") or (
        case.mask in ("causal", "window") and case.T > case.S
    )
    if case.offset or case.spread > 1:
        return {"large logits"}
    if case.S == 1:
        return {"one key"}
    found = {
        "products": not masked and not case.bias,
        "masks": masked and not empty and not case.bias,
        "empty rows": empty,
        "biases": case.bias and not masked,
        "biases and masks": case.bias and masked,
        "padding": case.mask == "padding",
        "causal, not square": case.mask == "causal" and case.T != case.S,
    }
    return {name for name, member in found.items() if member}


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
    like = {"dtype": query.dtype}
    W_key = torch.cat([torch.eye(d, **like), torch.zeros(d, e, **like)], 1)
    W_value = torch.cat([torch.zeros(e, d, **like), torch.eye(e, **like)], 1)
    return torch.eye(d, **like), W_key, W_value, torch.eye(e, **like)


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


def module_with_heads(query, key, value, mask=None):
    heads, width = query.shape[1], query.shape[1] * query.shape[3]
    module = MultiHeadAttention(width, heads, memory=2 * width, bias=False)
    module.to(query.dtype)
    parts = (module.query, module.key, module.value, module.output)
    with torch.no_grad():
        for part, W in zip(parts, identities(query, key, value), strict=True):
            part.weight.copy_(W)
    memory = side_by_side(key, value)
    return split_heads(module(merge_heads(query), memory, mask), heads)


class Bare(nn.Module):
    """In place of a residual and its norm: the sublayer, and nothing else."""

    def __init__(self, width, dropout):
        super().__init__()

    def forward(self, x, sublayer):
        return sublayer(x)


def picked(attention, start, size):
    """Let an attention take queries, keys and values out of x's columns.

    Head h's columns stand at h * size in the parts of x that begin at `start`.
    A head is four times as wide as they are, the rest is 0, and so its scale
    is half of theirs: queries are doubled, which is exact.
    """
    heads, whole = attention.heads, attention.query.weight.shape[0]
    parts = attention.query, attention.key, attention.value
    with torch.no_grad():
        for x in attention.parameters():
            x.zero_()
        for part, begin, factor in zip(parts, start, (2, 1, 1), strict=True):
            for h in range(heads):
                for d in range(size):
                    column = begin + h * size + d
                    part.weight[h * whole // heads + d, column] = factor
        for h, d in product(range(heads), range(size)):
            attention.output.weight[h * size + d, h * whole // heads + d] = 1


def bare(block, query):
    """A block of four times the queries' columns, its attention alone."""
    heads, size = query.shape[1], query.shape[3]
    made = block(4 * heads * size, heads, 1, residual=Bare).to(query.dtype)
    made.feed_forward = nn.Identity()
    return made, heads * size


def encoder_block(query, key, value, mask=None):
    """One sequence: first what asks, then what is asked; all of it asks."""
    block, columns = bare(EncoderBlock, query)
    picked(block.attention, (0, columns, 2 * columns), query.shape[3])
    B, H, T, _ = query.shape
    x = torch.cat(
        [
            F.pad(merge_heads(query), (0, 3 * columns)),
            F.pad(side_by_side(key, value), (columns, columns)),
        ],
        dim=1,
    )
    seen = torch.zeros(B, H, x.shape[1], x.shape[1], dtype=torch.bool)
    seen[:, :, :T, T:] = True if mask is None else mask
    return split_heads(block(x, seen)[:, :T, :columns], H)


def decoder_block(query, key, value, mask=None):
    """The memory is what is asked; each target asks itself alone before."""
    block, columns = bare(DecoderBlock, query)
    picked(block.attention, (0, 0, 0), query.shape[3])
    picked(block.cross, (0, columns, 2 * columns), query.shape[3])
    x = F.pad(merge_heads(query), (0, 3 * columns))
    memory = F.pad(side_by_side(key, value), (columns, columns))
    alone = torch.eye(x.shape[1], dtype=torch.bool)
    output, _ = block(x, memory, alone, mask)
    return split_heads(output[..., :columns], query.shape[1])


def torch_with_heads(query, key, value, mask=None):
    B, H, T, D = query.shape
    module = nn.MultiheadAttention(
        H * D, H, bias=False, batch_first=True, dtype=query.dtype
    )
    eye = torch.eye(H * D, dtype=query.dtype)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([eye, eye, eye]))
        module.out_proj.weight.copy_(eye)
    if mask is not None:
        # Here True means "may not look", and heads stand in the batch axis.
        mask = ~mask.expand(B, H, T, key.shape[2]).flatten(0, 1)
    output, _ = module(*(merge_heads(x) for x in (query, key, value)), attn_mask=mask)
    return split_heads(output, H)


def grouped(groups):
    """Heads of a group share key and value: give each group the same ones."""

    def call(query, key, value, mask=None):
        return grouped_query(query, key[:, :groups], value[:, :groups], mask)

    return call


def shared(groups, attention=attend):
    """The reference: each group's key and value, repeated for its heads."""

    def call(query, key, value, mask=None, **more):
        if groups is not None:
            each = query.shape[1] // groups
            key, value = (
                x[:, :groups].repeat_interleave(each, dim=1) for x in (key, value)
            )
        return attention(query, key, value, mask, **more)

    return call


class InOwnPrecision(torch.autograd.Function):
    """Every product and every partial sum is rounded to the inputs' precision.

    The keys are taken one by one, forward by an online softmax that divides
    after the sum.
    """

    @staticmethod
    def forward(ctx, query, key, value, mask):
        shape = *query.shape[:-1], key.shape[-2]
        mask = torch.ones(shape).bool() if mask is None else mask.expand(shape)
        scale = query.shape[-1] ** -0.5
        scores = one_after_the_other(query, key.mT) * scale
        scores = scores.masked_fill(~mask, -torch.inf)
        maximum = torch.full_like(scores[..., :1], -torch.inf)
        total = torch.zeros_like(maximum)
        output = torch.zeros_like(query[..., :1] * value[..., :1, :])
        for s in range(key.shape[-2]):
            highest = torch.maximum(maximum, scores[..., s : s + 1])
            finite = highest.masked_fill(highest == -torch.inf, 0.0)
            shrunk = (maximum - finite).exp()
            raised = (scores[..., s : s + 1] - finite).exp()
            total = total * shrunk + raised
            output = output * shrunk + raised * value[..., s : s + 1, :]
            maximum = highest
        some = total.masked_fill(total == 0, 1.0)
        finite = maximum.masked_fill(maximum == -torch.inf, 0.0)
        weights = (scores - finite).exp() / some
        ctx.save_for_backward(query, key, value, weights)
        return output / some

    @staticmethod
    def backward(ctx, upstream):
        query, key, value, weights = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        dweights = one_after_the_other(upstream, value.mT)
        ones = torch.ones_like(weights[..., :1, :].mT)
        mean = one_after_the_other(weights * dweights, ones)
        dscores = weights * (dweights - mean)
        return (
            one_after_the_other(dscores, key) * scale,
            one_after_the_other(dscores.mT, query) * scale,
            one_after_the_other(weights.mT, upstream),
            None,
        )


def one_after_the_other(a, b):
    """Return a @ b, each product and each partial sum rounded."""
    made = torch.zeros_like(a[..., :1] * b[..., :1, :])
    for n in range(a.shape[-1]):
        made = made + a[..., n : n + 1] * b[..., n : n + 1, :]
    return made


def in_own_precision(query, key, value, mask=None):
    return InOwnPrecision.apply(query, key, value, mask)


def with_lengths(query, key, value, mask=None):
    """Chapter 3's global attention; it knows lengths, not masks."""
    B, H, T, D = query.shape
    lengths = torch.full((B,), key.shape[2]) if mask is None else mask.sum(-1)
    lengths = lengths.view(B, 1).expand(B, H).flatten()
    context, _ = GlobalAttention(DotScore(D, D))(
        query.flatten(0, 1) * D**-0.5,
        *(x.flatten(0, 1) for x in (key, value)),
        lengths,
    )
    return context.view(B, H, T, -1)


class ByHand(torch.autograd.Function):
    """`attend` forwards, and the gradient that chapter 4 derives backwards."""

    @staticmethod
    def forward(ctx, query, key, value, mask):
        ctx.save_for_backward(query, key, value, mask)
        return attend(query, key, value, mask)

    @staticmethod
    def backward(ctx, upstream):
        query, key, value, mask = ctx.saved_tensors
        return *attend_gradient(query, key, value, upstream, mask), None


def gradient_by_hand(query, key, value, mask=None):
    return ByHand.apply(query, key, value, mask)


@dataclass
class Implementation:
    """A function, what it can do, and how many groups share keys and values."""

    run: Callable
    bias: bool = False
    widths: bool = True  # whether values may be wider than keys
    masks: tuple = tuple(MASKS)
    groups: int | None = None
    own: bool = False  # whether sums are taken in the precision of the inputs
    backward: bool = True  # whether it has gradients


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
    return attend_window(query, key, value, SIZE, rows=3)


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
            asked["window"] = SIZE
        return flash_attention(query, key, value, **asked)

    return call


def flash_grouped(query, key, value, mask=None):
    return flash_attention(query, key[:, :1], value[:, :1])


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


FLASH = ("none", "causal", "padding", "causal and padding", "window")

IMPLEMENTATIONS = {
    "attend": Implementation(attend, bias=True),
    "one by one": Implementation(one_by_one, bias=True),
    "gradient by hand": Implementation(gradient_by_hand),
    "added in its own precision": Implementation(in_own_precision, own=True),
    "global attention": Implementation(with_lengths, masks=("none", "padding")),
    "multi-head loop": Implementation(with_heads(multi_head_loop)),
    "multi-head": Implementation(with_heads(multi_head)),
    "MultiHeadAttention": Implementation(module_with_heads, widths=False),
    "EncoderBlock": Implementation(encoder_block, widths=False),
    "DecoderBlock": Implementation(decoder_block, widths=False),
    "grouped, 3 groups": Implementation(grouped(3), groups=3),
    "multi-query": Implementation(grouped(1), groups=1),
    "attend_in_blocks": Implementation(in_blocks),
    "attend_block_sparse": Implementation(in_sparse_blocks),
    "attend_window": Implementation(in_window, masks=("window",)),
    "attend_in_query_chunks": Implementation(in_query_chunks, masks=("none",)),
    **{
        f"flash_attention, {kind}": Implementation(flash(kind), masks=(kind,))
        for kind in FLASH
    },
    "flash_attention, 1 group": Implementation(
        flash_grouped, masks=("none",), groups=1
    ),
    **{
        f"{function.__name__}, 2 parts": Implementation(
            decoded(call), masks=FLASH[:-1], backward=False
        )
        for function, call in (
            (attend_split_kv, in_parts),
            (attend_paged, in_pages),
        )
    },
    "F.scaled_dot_product_attention": Implementation(torch_sdpa, bias=True),
    "nn.MultiheadAttention": Implementation(torch_with_heads, widths=False),
}
EXCEPTIONS = {
    (
        "nn.MultiheadAttention",
        "empty rows",
    ): "NaN for a query that sees no key, if weights are asked for",
    ("nn.MultiheadAttention", "empty rows and large logits"): "the same",
    (
        "nn.MultiheadAttention",
        "a window, more queries than keys",
    ): "the first queries see no key",
    (
        "nn.MultiheadAttention",
        "causal, more queries than keys",
    ): "the first queries see no key",
    ("nn.MultiheadAttention", "the future alone"): "the last query sees no key",
}


def able(name, case):
    """Tell whether an implementation can be asked this at all."""
    made = IMPLEMENTATIONS[name]
    return (
        case.mask in made.masks
        and (made.bias or not case.bias)
        and (made.widths or case.D == case.E)
    )


MORE = pytest.mark.precision
# Case by case: what a case's truth and budget are is then found out by one of
# the processes that share the tests.
PAIRS = [
    (name, title)
    for (title, case), name in product(CASES.items(), IMPLEMENTATIONS)
    if able(name, case) and (name, title) not in EXCEPTIONS
]


def draw(title: str, dtype: torch.dtype) -> tuple[list[Tensor], dict, Tensor]:
    """Return the inputs in a precision, mask and bias, and the upstream."""
    case = CASES[title]
    seed = torch.Generator().manual_seed(zlib.crc32(title.encode()))

    def normal(*shape):
        made = torch.randn(*shape, generator=seed, dtype=torch.float64)
        if case.strided:
            made = made.transpose(1, 2).contiguous().transpose(1, 2)
        return made.to(dtype)

    B, H = case.B, case.H
    query = normal(B, H, case.T, case.D) * case.spread
    key, value = normal(B, H, case.S, case.D), normal(B, H, case.S, case.E)
    # A coordinate that all queries, and all keys, have in common.
    query[..., 0] += abs(case.offset) ** 0.5 * case.D**0.5
    key[..., 0] += case.offset / max(1, abs(case.offset)) ** 0.5
    more = {}
    mask = MASKS[case.mask](case, seed)
    if mask is not None:
        more["mask"] = mask
    if case.bias:
        more["bias"] = normal(1, H, case.T, case.S)
    return [query, key, value], more, normal(B, H, case.T, case.E)


def results(function, inputs, more, upstream, backward: bool = True) -> list[Tensor]:
    """Return output and gradients for query, key, value and bias.

    Only the output, if there is no backward pass.
    """
    if not backward:
        return [function(*inputs, **more)]
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    if "bias" in more:
        more = more | {"bias": more["bias"].clone().requires_grad_()}
        inputs = [*inputs, more["bias"]]
    output = function(*inputs[:3], **more)
    return [output, *torch.autograd.grad(output, inputs, upstream)]


def precise(query, key, value, upstream, mask=None, bias=None):
    """Output and gradients with 40 digits, by the formulas of chapter 4.

    The truth for float64, which cannot judge itself.
    """
    exact = np.vectorize(mpmath.mpf, otypes=[object])
    q, k, v, u = (exact(x.numpy()) for x in (query, key, value, upstream))
    scale = 1 / mpmath.sqrt(query.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * scale
    if bias is not None:
        scores = scores + exact(bias.numpy())
    seen = np.ones(scores.shape, bool)
    if mask is not None:
        seen = np.broadcast_to(mask.numpy(), scores.shape)
    raised = np.vectorize(mpmath.exp, otypes=[object])(scores) * seen
    total = raised.sum(-1, keepdims=True)
    weights = raised / np.where(total == 0, mpmath.mpf(1), total)
    dweights = u @ v.swapaxes(-1, -2)
    average = (weights * dweights).sum(-1, keepdims=True)
    dscores = weights * (dweights - average)
    found = [
        weights @ v,
        dscores @ k * scale,
        dscores.swapaxes(-1, -2) @ q * scale,
        weights.swapaxes(-1, -2) @ u,
    ]
    if bias is not None:
        found.append(dscores.sum(0, keepdims=True))
    return [torch.from_numpy(x.astype(float)) for x in found]


@cache
def budgets(title, dtype, groups=None, own=False):
    """Return truth and budget of the output and of each gradient.

    Args:
        title: of a case.
        dtype: the precision of the results.
        groups: how many groups share keys and values; none unless given.
        own: whether sums are taken in the precision of the results, also where
            processors add in a higher one.
    """
    inputs, more, upstream = draw(title, dtype)
    names = ("query", "key", "value", *(("bias",) if "bias" in more else ()))
    mask = {"mask": more["mask"]} if "mask" in more else {}
    function = attend if groups is None else shared(groups)

    def reference(*inputs):
        return function(**dict(zip(names, inputs, strict=True)), **mask)

    given = [*inputs, *(x for name, x in more.items() if name == "bias")]
    adds = dtype if own else None
    found = error_budget(reference, given, upstream, accumulate=adds)
    if dtype == torch.float64 and groups is None:
        right = precise(*inputs, upstream, **more)
        pairs = zip(right, found, strict=True)
        found = [Bounded(x, bounded.allowed) for x, bounded in pairs]
    return found


def judged(run, title, dtype, backward=True, **more):
    """Return the share of the budget of the output and of each gradient."""
    ours = results(run, *draw(title, dtype), backward)
    allowed = budgets(title, dtype, **more)
    pairs = zip(ours, allowed if backward else allowed[:1], strict=True)
    return [share_of_budget(*pair) for pair in pairs]


def shares(name: str, title: str, dtype: torch.dtype) -> list[float]:
    """Return an implementation's shares of the budget."""
    made = IMPLEMENTATIONS[name]
    more = {"groups": made.groups, "own": made.own}
    return judged(made.run, title, dtype, made.backward, **more)


def exposed(wrong: str, family: str, dtype: torch.dtype) -> tuple[float, str]:
    """Return the largest share of a wrong implementation in a family."""
    return max(
        (max(judged(WRONG[wrong].run, title, dtype)), title)
        for title, case in CASES.items()
        if family in families(case)
    )


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(d, id=str(d)[6:], marks=() if d == torch.float32 else MORE)
        for d in DTYPES
    ],
)
@pytest.mark.parametrize(("name", "title"), PAIRS)
def test_every_implementation_equals_the_reference(name, title, dtype):
    assert max(shares(name, title, dtype)) <= 1


@pytest.mark.parametrize(("name", "title"), EXCEPTIONS)
def test_every_listed_exception_still_differs(name, title):
    inputs, more, _ = draw(title, torch.float32)
    output = IMPLEMENTATIONS[name].run(*inputs, **more)
    # One head that sees nothing spoils the query's whole row: 0 · NaN is NaN.
    shape = *output.shape[:-1], inputs[1].shape[2]
    empty = ~more["mask"].expand(shape).any(-1).all(1)
    rows = output.transpose(1, 2)
    assert rows[empty].isnan().any(-1).any(-1).all()
    expected = attend(*inputs, **more).transpose(1, 2)
    torch.testing.assert_close(rows[~empty], expected[~empty], rtol=1e-4, atol=1e-5)


EXPOSED = [
    (wrong, family, dtype)
    for wrong, made in WRONG.items()
    for family, dtype in product(made.families, made.dtypes)
]


@pytest.mark.precision
@pytest.mark.parametrize(
    ("wrong", "family", "dtype"),
    [pytest.param(*x, id=f"{x[0]}-{x[1]}-{str(x[2])[6:]}") for x in EXPOSED],
)
def test_a_wrong_implementation_exceeds_the_budget_five_times(wrong, family, dtype):
    share, _ = exposed(wrong, family, dtype)
    assert share >= 5


def test_every_family_of_cases_has_wrong_implementations():
    wrong = {family for made in WRONG.values() for family in made.families}
    assert wrong == set().union(*map(families, CASES.values()))


def tightest() -> list[tuple]:
    """Return per family and precision the tightest right and closest wrong."""
    right, wrong = {}, {}
    pairs = make_progress_bar([*product(PAIRS, DTYPES)], desc="right results")
    for (name, title), dtype in pairs:
        found = (max(shares(name, title, dtype)), f"{name}: {title}")
        for family in families(CASES[title]):
            before = right.get((family, dtype), found)
            right[family, dtype] = max(before, found)
    for name, family, dtype in make_progress_bar(EXPOSED, desc="wrong results"):
        share, title = exposed(name, family, dtype)
        found = share, f"{name}: {title}"
        wrong[family, dtype] = min(wrong.get((family, dtype), found), found)
    return [(*at, *right[at], *wrong[at]) for at in sorted(right, key=str)]


def main():
    """Print the tables of shares: by implementation, and by family of cases."""
    worst: dict[str, tuple] = {}
    for (name, title), dtype in make_progress_bar([*product(PAIRS, DTYPES)]):
        found = (max(shares(name, title, dtype)), title, str(dtype)[6:])
        worst[name] = max(worst.get(name, found), found)
    print("| implementation | largest share | case | precision |")
    print("|---|---|---|---|")
    for name, (share, title, dtype) in worst.items():
        print(f"| {name} | {share:.2f} | {title} | {dtype} |")
    print("\n| cases | precision | tightest right | | closest wrong | |")
    print("|---|---|---|---|---|---|")
    for family, dtype, share, name, other, bad in tightest():
        print(f"| {family} | {str(dtype)[6:]}", end=" | ")
        print(f"{share:.2f} | {name} | {other:.3g} | {bad} |")
    print(
        f"\n{len(PAIRS) * len(DTYPES)} cases, largest share "
        f"{max(worst.values())[0]:.2f}; {len(EXPOSED)} refusals"
    )


if __name__ == "__main__":
    main()
