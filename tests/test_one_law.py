"""One law: every implementation of attention against `attend`.

Forwards and backwards with a random upstream gradient, in four precisions,
within the error budget of `attnbook.budget`. A new implementation is one line
in IMPLEMENTATIONS; a new kind of mask is one line in MASKS. What another
library answers differently stands in EXCEPTIONS with its reason, and a test
shows that it still does.

`python tests/test_one_law.py` prints how many cases there are and how much of
its budget each implementation uses at worst.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook import masks
from attnbook.attention_gradient import attend_gradient
from attnbook.blocked_window import attend_in_blocks, attend_window
from attnbook.budget import share_of_budget
from attnbook.cost.strips import attend_in_strips
from attnbook.flash import flash_attention
from attnbook.grouped_query import grouped_query
from attnbook.local_attention import GlobalAttention
from attnbook.luong import DotScore
from attnbook.multi_head import (
    MultiHeadAttention,
    merge_heads,
    multi_head,
    multi_head_loop,
    split_heads,
)
from attnbook.scaled_dot_product import attend
from attnbook.steady_attention import SteadyAttention
from attnbook.transformer_blocks import DecoderBlock, EncoderBlock

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
    "causal, a bias, large logits": Case(
        5, 7, 4, 4, "causal", offset=200.0, bias=True
    ),
    "causal and padding": Case(7, 7, 4, 5, "causal and padding"),
    "the future alone": Case(7, 7, 4, 4, "not causal"),
    "a window and sinks": Case(7, 11, 4, 4, "window and sinks"),
    "a dilated window": Case(11, 11, 4, 4, "dilated"),
    "a prefix": Case(7, 7, 4, 5, "prefix"),
    "documents": Case(11, 11, 4, 5, "documents"),
    "blocks": Case(6, 9, 4, 5, "blocks"),
    "a window": Case(13, 13, 4, 5, "window"),
    "a window, more keys than queries": Case(5, 17, 4, 4, "window"),
    "a window, more queries than keys": Case(11, 4, 4, 4, "window"),
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
    # PyTorch has one argument for both: True = may look, or a bias.
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
    made = block(4 * heads * size, heads, 1, around=Bare).to(query.dtype)
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


def steady(query, key, value, mask=None):
    """Neither normalised nor capped."""
    heads, size = query.shape[1], query.shape[3]
    columns = heads * size
    attention = SteadyAttention(4 * columns, heads).to(query.dtype)
    picked(attention, (0, columns, 2 * columns), size)
    x = F.pad(merge_heads(query), (0, 3 * columns))
    memory = F.pad(side_by_side(key, value), (columns, columns))
    return split_heads(attention(x, memory, mask)[..., :columns], heads)


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
    output, _ = module(
        *(merge_heads(x) for x in (query, key, value)), attn_mask=mask
    )
    return split_heads(output, H)


def grouped(groups):
    """Heads of a group share key and value: give each group the same ones."""

    def call(query, key, value, mask=None):
        return grouped_query(query, key[:, :groups], value[:, :groups], mask)

    return call


def shared(groups, law=attend):
    """The law for it: key and value of each group, repeated for its heads."""

    def call(query, key, value, mask=None, **more):
        if groups is not None:
            each = query.shape[1] // groups
            key, value = (
                x[:, :groups].repeat_interleave(each, dim=1)
                for x in (key, value)
            )
        return law(query, key, value, mask, **more)

    return call


def stacked(groups, law):
    """The same without repeating: a group's queries as one long list.

    Longer lists of queries are multiplied by another of PyTorch's routines,
    which adds in an order of its own.
    """

    def call(query, key, value, mask=None):
        B, H, T, _ = query.shape

        def stack(x):
            return x.unflatten(1, (groups, -1)).flatten(2, 3)

        if mask is not None:
            mask = stack(mask.expand(B, H, T, key.shape[2]))
        output = law(stack(query), key[:, :groups], value[:, :groups], mask)
        return output.unflatten(2, (-1, T)).flatten(1, 2)

    return call


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
    """The law forwards, and the gradient that chapter 4 derives backwards."""

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

    @cached_property
    def law(self):
        return attend if self.groups is None else shared(self.groups)


def in_blocks(query, key, value, mask=None):
    if mask is None:
        mask = torch.ones(1, 1, dtype=torch.bool)
    return attend_in_blocks(query, key, value, mask, rows=3)


def in_window(query, key, value, mask=None):
    """It makes its own mask; the cases' is the same."""
    return attend_window(query, key, value, SIZE, rows=3)


def in_strips(query, key, value, mask=None):
    return attend_in_strips(query, key, value, rows=3)


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


FLASH = ("none", "causal", "padding", "causal and padding", "window")

IMPLEMENTATIONS = {
    "attend": Implementation(attend, bias=True),
    "one by one": Implementation(one_by_one, bias=True),
    "gradient by hand": Implementation(gradient_by_hand),
    "global attention": Implementation(with_lengths, masks=("none", "padding")),
    "multi-head loop": Implementation(with_heads(multi_head_loop)),
    "multi-head": Implementation(with_heads(multi_head)),
    "MultiHeadAttention": Implementation(module_with_heads, widths=False),
    "EncoderBlock": Implementation(encoder_block, widths=False),
    "DecoderBlock": Implementation(decoder_block, widths=False),
    "SteadyAttention": Implementation(steady, widths=False),
    "grouped, 3 groups": Implementation(grouped(3), groups=3),
    "multi-query": Implementation(grouped(1), groups=1),
    "attend_in_blocks": Implementation(in_blocks),
    "attend_window": Implementation(in_window, masks=("window",)),
    "attend_in_strips": Implementation(in_strips, masks=("none",)),
    **{
        f"flash_attention, {kind}": Implementation(flash(kind), masks=(kind,))
        for kind in FLASH
    },
    "flash_attention, 1 group": Implementation(
        flash_grouped, masks=("none",), groups=1
    ),
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
PAIRS = [
    (name, title)
    for name, (title, case) in product(IMPLEMENTATIONS, CASES.items())
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


def results(function, inputs, more, upstream) -> list[Tensor]:
    """Return output and gradients for query, key, value and bias."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    if "bias" in more:
        more = more | {"bias": more["bias"].clone().requires_grad_()}
        inputs = [*inputs, more["bias"]]
    output = function(*inputs[:3], **more)
    return [output, *torch.autograd.grad(output, inputs, upstream)]


def plain(query, key, value, mask=None, bias=None, order=None, early=0.0):
    """Attention as anyone would write it, in the precision of its inputs.

    Args:
        query, key, value, mask, bias: as of `attend`.
        order: of the keys and of the coordinates of query and key; it changes
            only the order in which PyTorch adds.
        early: the share of the scaling done before the product: all of it on
            the query (1), none (0), or half, its root on query and on key.
    """
    order, axes = order or (slice(None), slice(None))
    query, key = query[..., axes], key[..., order, :][..., axes]
    value = value[..., order, :]
    scale = query.shape[-1] ** -0.5
    if early == 0.5:
        query, key = query * scale**0.5, key * scale**0.5
    elif early == 1:
        query = query * scale
    scores = query @ key.transpose(-2, -1)
    if early == 0:
        scores = scores * scale
    if bias is not None:
        scores = scores + bias[..., order]
    if mask is None:
        return scores.softmax(-1) @ value
    mask = mask[..., order]
    rows = mask.any(-1, keepdim=True)
    hidden = scores.masked_fill(~mask, -torch.inf).masked_fill(~rows, 0.0)
    return hidden.softmax(-1).masked_fill(~rows, 0.0) @ value


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
def truth(law: Callable, title: str, dtype: torch.dtype) -> list[Tensor]:
    """Return output and gradients of the law, far more precise than dtype."""
    inputs, more, upstream = draw(title, dtype)
    if dtype == torch.float64 and law is attend:
        return precise(*inputs, upstream, **more)
    more = {k: v.double() if k == "bias" else v for k, v in more.items()}
    return results(law, [x.double() for x in inputs], more, upstream.double())


@cache
def usual(groups: int | None, title: str, dtype: torch.dtype) -> list[list]:
    """Return what plain PyTorch gives: six orders of adding, three scalings.

    Where groups share keys: with the keys repeated, and with queries stacked.

    One order alone is sometimes right by luck, where numbers are few.
    """
    inputs, more, upstream = draw(title, dtype)
    seed = torch.Generator().manual_seed(0)
    sizes = inputs[1].shape[2:]
    orders = [
        [torch.randperm(n, generator=seed) for n in sizes] for _ in range(6)
    ]
    ways = [shared] if groups is None else [shared, stacked]
    return [
        results(
            way(groups, partial(plain, order=order, early=early)),
            inputs,
            more,
            upstream,
        )
        for order in orders
        for early in (0, 0.5, 1)
        for way in ways
    ]


def shares(name: str, title: str, dtype: torch.dtype) -> list[float]:
    """Return the share of the budget of output and each gradient."""
    made = IMPLEMENTATIONS[name]
    right = truth(made.law, title, dtype)
    ours = results(made.run, *draw(title, dtype))
    plains = zip(*usual(made.groups, title, dtype), strict=True)
    return [
        min(share_of_budget(our, one, true) for one in some)
        for our, some, true in zip(ours, plains, right, strict=True)
    ]


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(d, id=str(d)[6:], marks=() if d == torch.float32 else MORE)
        for d in DTYPES
    ],
)
@pytest.mark.parametrize(("name", "title"), PAIRS)
def test_the_law_holds(name, title, dtype):
    assert max(shares(name, title, dtype)) <= 1


@pytest.mark.parametrize(("name", "title"), EXCEPTIONS)
def test_an_exception_is_still_one(name, title):
    inputs, more, _ = draw(title, torch.float32)
    output = IMPLEMENTATIONS[name].run(*inputs, **more)
    # One head that sees nothing spoils the query's whole row: 0 · NaN is NaN.
    shape = *output.shape[:-1], inputs[1].shape[2]
    empty = ~more["mask"].expand(shape).any(-1).all(1)
    rows = output.transpose(1, 2)
    assert rows[empty].isnan().any(-1).any(-1).all()
    law = attend(*inputs, **more).transpose(1, 2)
    torch.testing.assert_close(rows[~empty], law[~empty], rtol=1e-4, atol=1e-5)


WRONG = {
    "no scale": lambda q, k, v, mask=None: attend(q, k, v, mask, scale=1.0),
    "the mask upside down": lambda q, k, v, mask=None: attend(
        q, k, v, None if mask is None else ~mask
    ),
    "scaled after the softmax": lambda q, k, v, mask=None: (
        attend(q, k, v, mask, scale=1.0) * q.shape[-1] ** -0.5
    ),
    "softmax over the queries": lambda q, k, v, mask=None: (
        (q @ k.mT * q.shape[-1] ** -0.5).softmax(-2) @ v
    ),
    "no gradient for the keys": lambda q, k, v, mask=None: attend(
        q, k.detach() + 0 * k, v, mask
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_law_refuses_what_is_wrong(wrong, monkeypatch):
    monkeypatch.setitem(IMPLEMENTATIONS, wrong, Implementation(WRONG[wrong]))
    for dtype in DTYPES:
        assert not max(shares(wrong, "a mask at random", dtype)) <= 1


def main():
    """Print the number of cases and each implementation's worst share."""
    worst: dict[str, tuple] = {}
    for (name, title), dtype in product(PAIRS, DTYPES):
        found = (max(shares(name, title, dtype)), title, str(dtype)[6:])
        worst[name] = max(worst.get(name, found), found)
    for name, (share, title, dtype) in worst.items():
        print(f"{name:32} {share:5.2f} of its budget at {title!r}, {dtype}")
    print(
        f"{len(PAIRS) * len(DTYPES)} cases, worst {max(worst.values())[0]:.2f}"
    )


if __name__ == "__main__":
    main()
