"""Exact attention that skips the blocks of keys that its mask hides entirely.

The queries are processed in chunks, and each chunk attends only to the blocks
of keys that contain a key it can attend to. The result is that of `attend`;
only the amount of work and the largest tensor are smaller.

A window on a CPU needs no loop: overlapping views of the keys, one for each
chunk of queries, make it one call of PyTorch's fused attention. Wide windows
take oneDNN's faster products. Each thread computes heads of its own: threads that
share many short operations wait for each other most of the time.
`python -m workshop.bench.windows 1` compares them with PyTorch's functions.

Source: a window over the last keys as in Jiang et al. (2023), section 2,
    https://arxiv.org/abs/2310.06825 (here the query's own key is one of its
    keys); the chunks and blocks are this book's addition.
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width of
    query and key, E of values, R queries in a chunk, K sinks
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import product
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch._C._autograd import _profiler_enabled
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

from attnbook.attention.scaled_dot_product import attend, require_heads
from attnbook.masks.rules import check_positive

CHUNK_SIZE = 128
# PyTorch's function on a CPU multiplies 32 queries at a time if they are few.
WINDOW_ROWS = 32
# The first queries, whose windows are not whole, take masks of this many rows.
HEAD_ROWS = 256
# Queries of a call for one head, whose results are copied while in the cache.
CALL_ROWS = 2048
# From this many keys on, oneDNN's products are faster than PyTorch's function.
WIDE = 512
Item = TypeVar("Item")


def attend_in_blocks(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
    mask: Bool[Tensor, "..."],
    rows: int = CHUNK_SIZE,
) -> Float[Tensor, "B H T E"]:
    """Return `attend` under any mask, without the blocks that are masked out.

    A block is skipped if it is masked out for all queries of a chunk, in all
    heads, in the whole batch.

    Args:
        mask: True where a query can attend; broadcasts to (B, H, T, S).
        rows: queries in a chunk, and keys in a block.

    Raises:
        ValueError: if `rows` is below 1, or the mask or the shapes do not fit.
    """
    check_positive(rows=rows)
    query, key, value = match_heads(query, key, value)
    T, S = query.shape[-2], key.shape[-2]
    try:
        mask = mask.expand(*mask.shape[:-2], T, S)
    except RuntimeError:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not broadcast to "
            f"{T} queries and {S} keys"
        ) from None
    keys, values = key.split(rows, dim=-2), value.split(rows, dim=-2)
    outputs = []
    for chunk, chunk_mask in zip(
        query.split(rows, dim=-2), mask.split(rows, dim=-2), strict=True
    ):
        parts = chunk_mask.split(rows, dim=-1)
        used = [j for j, part in enumerate(parts) if part.any()]
        k, v = join(keys, used, -2), join(values, used, -2)
        outputs.append(attend(chunk, k, v, join(parts, used, -1)))
    return torch.cat(outputs, dim=-2)


def join(parts: Sequence[Tensor], used: list[int], axis: int) -> Tensor:
    """Concatenate some of the parts; of none, return an empty slice."""
    if not used:
        return parts[0].narrow(axis, 0, 0)
    return torch.cat([parts[j] for j in used], axis)


def attend_window(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
    size: int,
    rows: int = WINDOW_ROWS,
    sinks: Float[Tensor, "K"] | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return attention of each query to the last `size` keys, its own included.

    The last query is aligned with the last key. No (T, S) mask is ever made. On a
    CPU it has first derivatives only, where D = E.

    Args:
        size: number of keys that a query can attend to.
        rows: queries in a chunk; wide windows on a CPU choose their own.
        sinks: one more logit for each head, which has no value (gpt-oss).

    Raises:
        ValueError: if `rows` or `size` is below 1, there is not one sink for each
            head, or the shapes do not fit.
    """
    check_positive(size=size, rows=rows)
    query, key, value = match_heads(query, key, value, sinks)
    # Nothing that traces can wait for a check for NaN, and oneDNN drops tangents.
    special = (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or any(unpack_dual(x).tangent is not None for x in (query, key, value))
    )
    if query.device.type == "cpu" and not special:
        output = attend_window_views(query, key, value, size, rows, sinks)
        # PyTorch adds -inf to scores that are masked out, and NaN - inf is NaN.
        # The slow version replaces the scores, so that no such key is read.
        if output is not None and not output.detach().sum().isnan():
            return output
    T, S = query.shape[-2], key.shape[-2]
    outputs = []
    for start in range(S - T, max(S, S - T + 1), rows):
        # The queries of this chunk are aligned with keys start ... stop - 1.
        stop = min(start + rows, S)
        low, high = max(0, start - size + 1), max(0, stop)
        mask = window_mask(key, size, start, stop, low, high)
        chunk = query[:, :, start - S + T : stop - S + T]
        near = key[:, :, low:high], value[:, :, low:high]
        outputs.append(attend_with_sinks(chunk, *near, mask, sinks))
    return torch.cat(outputs, dim=-2)


def window_mask(
    like: Tensor, size: int, start: int, stop: int, low: int, high: int
) -> Tensor:
    """Return which keys low ... high - 1 the queries start ... stop - 1 see."""
    own = start - low  # the column of the first query's own key
    shape = stop - start, high - low
    mask = torch.ones(shape, dtype=torch.bool, device=like.device)
    return mask.tril_(own).triu_(own - size + 1)


def attend_window_views(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    size: int,
    rows: int,
    sinks: Tensor | None,
) -> Tensor | None:
    """Return `attend_window` by PyTorch's fused attention, or None if that lacks it."""
    (B, H, T, D), S = query.shape, key.shape[2]
    given = query, key, value
    if value.shape[-1] != D or not all(x.numel() and x.stride(-1) == 1 for x in given):
        return None
    heads = [x.flatten(0, 1) for x in given]
    if sinks is not None:
        sinks = sinks.to(query).repeat(B)[:, None]  # (B H, 1)
    leaves = given if sinks is None else (*given, sinks)
    if torch.is_grad_enabled() and any(x.requires_grad for x in leaves):
        return attend_heads(heads, size, rows, sinks).unflatten(0, (B, H))
    wide = size >= WIDE and sinks is None and has_onednn(*given)
    output = query.new_empty(B * H, T, D)

    def fill(numbers: list[int]) -> None:
        if wide:
            parts = [[x[i] for x in (*heads, output)] for i in numbers]
            return attend_wide(parts, size)
        for i, start in product(numbers, range(0, T, CALL_ROWS)):
            one, own = slice(i, i + 1), slice(start, min(start + CALL_ROWS, T))
            near = slice(max(0, S - T + start - size), max(0, S - T + own.stop))
            part = [x[one, y] for x, y in zip(heads, (own, near, near), strict=True)]
            more = None if sinks is None else sinks[one]
            output[one, own] = attend_heads(part, size, rows, more)

    run_in_threads(fill, range(B * H))
    return output.unflatten(0, (B, H))


def attend_heads(
    given: Sequence[Tensor], size: int, rows: int, sinks: Tensor | None
) -> Tensor:
    """Return the outputs (B H, T, D) of heads, by PyTorch's fused attention."""
    query, key, value = given
    (_, T, D), S = query.shape, key.shape[1]
    empty = max(0, T - S)  # queries before the first key
    begin = S - T + empty  # the position of the first other query
    outputs = [query.new_zeros(len(query), empty, D)]
    query = query[:, empty:]

    def attend_range(start: int, stop: int) -> Tensor:
        """Attend from the queries at positions start ... stop - 1."""
        low = max(0, start - size)
        mask = window_mask(key, size, start, stop, low, stop)
        q = query[None, :, start - begin : stop - begin]
        k, v = (x[None, :, low:stop] for x in (key, value))
        return attend_fused(q, k, v, mask, sinks)[0]

    # All queries from `first` on have a whole window. A chunk's keys are one more
    # than it needs: the products of an even number of keys are faster.
    first = min(S, max(begin, size))
    count = (S - first) // rows
    last = first + count * rows
    for start in range(begin, first, HEAD_ROWS):
        outputs.append(attend_range(start, min(start + HEAD_ROWS, first)))
    if count:
        queries = query[:, first - begin : last - begin].unflatten(1, (count, rows))
        keys, values = (
            x[:, first - size : last].unfold(1, rows + size, rows).mT
            for x in (key, value)
        )
        mask = window_mask(key, size, size, size + rows, 0, size + rows)
        more = None if sinks is None else sinks[..., None]
        output = attend_fused(queries, keys, values, mask, more)
        outputs.append(output.flatten(1, 2))
    if last < S:
        outputs.append(attend_range(last, S))
    return torch.cat(outputs, dim=1)


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor | None
) -> Tensor:
    """Return PyTorch's attention on a CPU, where sinks broadcast to (B, H, T)."""
    if sinks is None:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)
    bias = query.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    # PyTorch does not annotate `apply`.
    output: Tensor = FusedWithSinks.apply(  # type: ignore[no-untyped-call]
        query, key, value, bias, sinks
    )
    return output


class FusedWithSinks(torch.autograd.Function):
    """PyTorch's attention and its gradient, with the sinks in the logsumexp.

    Only these operators give and take a logsumexp.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, sinks: Tensor
    ) -> Tensor:
        """Scale the output by the share of the weights that the keys keep."""
        attend_on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        output, lse = attend_on_cpu(query, key, value, attn_mask=bias)
        total = torch.logaddexp(lse, sinks.to(lse))
        output = output * (lse - total).exp()[..., None].to(output)
        ctx.save_for_backward(query, key, value, bias, sinks, output, total)
        found: Tensor = output
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Go back through the softmax over the keys and the sink."""
        query, key, value, bias, sinks, output, total = ctx.saved_tensors
        go_back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        given = upstream, query, key, value, output, total, 0.0, False
        gradients = go_back(*given, attn_mask=bias)
        share = (sinks.to(total) - total).exp()
        dsinks = -(share * (upstream * output).sum(-1)).sum_to_size(sinks.shape)
        return (*gradients, None, dsinks.to(sinks))


def attend_wide(heads: Sequence[Sequence[Tensor]], size: int) -> None:
    """Fill in the outputs of heads (query, key, value, output), chunk by chunk."""
    like, key, *_ = heads[0]
    scale, T, S = like.shape[-1] ** -0.5, len(like), len(key)

    @lru_cache(1)
    def make_edges(count: int, keys: int) -> list[tuple[slice, Tensor]]:
        """Only the first and the last keys are masked out for some of the queries."""
        edges = []
        for low in (0, keys - count):
            mask = window_mask(like, size, keys - count, keys, low, low + count)
            bias = like.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
            edges.append((slice(low, low + count), bias))
        return edges

    for *_, output in heads:
        output[: max(0, T - S)] = 0  # queries before the first key
    for start in range(max(0, T - S), T, CHUNK_SIZE):
        stop = min(start + CHUNK_SIZE, T)
        first, last = max(0, S - T + start - size), S - T + stop
        for query, key, value, output in heads:
            scores = multiply(query[start:stop] * scale, key[first:last])
            # Adding is faster than replacing; the caller looks for NaN.
            for edge, bias in make_edges(stop - start, last - first):
                scores[:, edge] += bias
            weights = torch.softmax(scores, dim=-1, out=scores)
            output[start:stop] = multiply(weights, value[first:last].mT)


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y.mT of two matrices, without a gradient, by oneDNN.

    On some processors it is twice as fast as MKL, which `@` takes. Only this
    operator gives oneDNN's product of float32.
    """
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, y, None, "none", [], "")
    return product


def has_onednn(*tensors: Tensor) -> bool:
    """Tell whether `multiply` takes tensors."""
    single = all(x.dtype == torch.float32 and x.is_cpu for x in tensors)
    return single and torch.backends.mkldnn.is_available()


# PyTorch does not annotate `disable`; compiled, each call would start new threads.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_in_threads(
    function: Callable[[list[Item]], None], items: Sequence[Item]
) -> None:
    """Call a function with a part of the items in each of PyTorch's threads.

    Each call runs without gradients and gives its operations as many threads as
    are left for it.
    """
    count = torch.get_num_threads()
    parts = [part for i in range(count) if (part := list(items[i::count]))]
    # What records operations, such as a memory meter, sees only this thread.
    watched = torch._C._len_torch_dispatch_stack() or _profiler_enabled()
    if len(parts) < 2 or watched:
        return function(list(items))
    inference = torch.is_inference_mode_enabled()

    def run(part: list[Item]) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            function(part)

    pool = keep_threads(os.getpid(), len(parts), count // len(parts))
    try:
        list(pool.map(run, parts))
    finally:
        torch.set_num_threads(count)  # the number for threads that start later


@cache
def keep_threads(process: int, count: int, each: int) -> ThreadPoolExecutor:
    """Return threads for later calls too: new ones would allocate new buffers.

    A process that was forked has no threads, and starts its own.
    """
    return ThreadPoolExecutor(count, "attention", torch.set_num_threads, (each,))


def attend_with_sinks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sinks: Tensor | None
) -> Tensor:
    """Return `attend` with, for each head, one more key: its logit, and value 0."""
    if sinks is None:
        return attend(query, key, value, mask)
    key, value = (pad(x, (0, 0, 0, 1)) for x in (key, value))
    if mask is not None:
        mask = pad(mask, (0, 1), value=True)
    none = sinks.new_zeros(len(sinks), 1, key.shape[-2] - 1)
    bias = torch.cat([none, sinks[:, None, None]], dim=-1)
    return attend(query, key, value, mask, bias.to(query))


def match_heads(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a key and a value head for each head of queries, or raise ValueError.

    They are cast as autocast asks: other threads, and PyTorch's operators for sinks,
    would not.
    """
    require_heads(query, key, value)
    if sinks is not None and sinks.shape != query.shape[1:2]:
        raise ValueError(
            f"sinks must be one number for each of {query.shape[1]} heads, but "
            f"have shape {tuple(sinks.shape)}"
        )
    each, kind = query.shape[1] // key.shape[1], query.device.type
    if each > 1:
        key, value = (x.repeat_interleave(each, dim=1) for x in (key, value))
    cast = kind != "meta" and torch.is_autocast_enabled(kind)
    if cast and query.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
        return query.to(dtype), key.to(dtype), value.to(dtype)
    return query, key, value
