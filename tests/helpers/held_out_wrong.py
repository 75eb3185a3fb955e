"""Wrong answers that were written after the checks, by kind.

No check was made with these answers in mind, so they measure how well checks
find what nobody listed. `python tests/helpers/held_out_wrong.py` prints how
each one is judged, and counts by kind and exercise; `make kinds` does so too.
"""

import copy
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention import additive, multi_head
from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.exercise import Exercise


@dataclass(frozen=True)
class HeldOut:
    """An answer that no check was made for.

    Attributes:
        where: module and name of the exercise.
        kind: what its author did not think of.
        words: what it does, in one sentence.
        answer: the function.
    """

    where: str
    kind: str
    words: str
    answer: Callable

    @property
    def exercise(self) -> Exercise:
        """The exercise that it answers."""
        return index_exercises()[self.where]


@cache
def index_exercises() -> dict[str, Exercise]:
    """Return every exercise by its module and its name."""
    from workshop.book.mistakes import list_entries

    return {f"{x.module}.{x.name}": x.exercise for x in list_entries()}


WRONG: list[HeldOut] = []


def wrong(where: str, kind: str) -> Callable:
    """Return a decorator: its function is wrong as its docstring says."""

    def add(answer: Callable) -> Callable:
        WRONG.append(HeldOut(where, kind, answer.__doc__.strip(), answer))
        return answer

    return add


# Batches.


@wrong("before_you_start.check_batched_product", "batch")
def product_of_at_most_4(query, key):
    """Multiply the first four sequences and leave zeros for the others."""
    out = torch.zeros(len(query), query.shape[1], key.shape[1])
    for b in range(min(4, len(query))):
        out[b] = query[b] @ key[b].T
    return out


@wrong("before_you_start.check_broadcast_add", "batch")
def add_squeezed(a, b):
    """Remove every axis of size 1 before adding."""
    return a.squeeze(0).unsqueeze(-2) + b.squeeze(0).unsqueeze(-3)


@wrong("encoder_decoder.check_last_state", "batch")
def last_states_squeezed(states, lengths):
    """Remove every axis of size 1 from the result."""
    rows = [states[i, n - 1] for i, n in enumerate(lengths.tolist())]
    return torch.stack(rows).squeeze(0)


@wrong("encoder_decoder.check_masked_loss", "batch")
def loss_of_four(logits, targets, pad):
    """Read only the first four sequences."""
    logits, targets = logits[:4].reshape(-1, logits.shape[-1]), targets[:4]
    return F.cross_entropy(logits, targets.reshape(-1), ignore_index=pad)


@wrong("bahdanau.check_additive_scores", "batch")
def additive_of_3(query, key, W_query, W_key, v):
    """Compute three sequences and repeat them for a larger batch."""
    scores = additive.additive_scores(query[:3], key[:3], W_query, W_key, v)
    return scores.repeat(-(-len(query) // 3), 1, 1)[: len(query)]


@wrong("bahdanau.check_initial_state", "batch")
def initial_state_squeezed(states, W):
    """Squeeze the state of the first symbol before the product."""
    half = states.shape[-1] // 2
    return torch.tanh(states[:, 0, half:].squeeze() @ W.T)


@wrong("before_you_start.check_gru_step", "batch")
def gru_of_two_or_three(x, h, W_ih, W_hh, b_ih, b_hh):
    """Repeat the biases three times, whatever the batch."""
    r_x, z_x, n_x = (x @ W_ih.T + b_ih.repeat(3, 1)[: len(x)]).chunk(3, -1)
    r_h, z_h, n_h = (h @ W_hh.T + b_hh.repeat(3, 1)[: len(x)]).chunk(3, -1)
    update = (z_x + z_h).sigmoid()
    new = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return (1 - update) * new + update * h


@wrong("before_you_start.check_lstm_step", "batch")
def lstm_squeezed(x, h, c, W_ih, W_hh, b_ih, b_hh):
    """Squeeze the new states."""
    i, f, g, o = (x @ W_ih.T + b_ih + h @ W_hh.T + b_hh).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return (o.sigmoid() * c.tanh()).squeeze(0), c.squeeze(0)


@wrong("self_attention.check_self_attention", "batch")
def self_attention_of_two(x, W_query, W_key, W_value):
    """Take the batch as two halves, and drop the middle one."""
    half = max(1, len(x) // 2)
    parts = [y for y in (x[:half], x[half : 2 * half]) if len(y)]
    done = [attend(y @ W_query.T, y @ W_key.T, y @ W_value.T) for y in parts]
    return torch.cat(done)


@wrong("masks.check_padding", "batch")
def padding_of_at_most_5(lengths, S):
    """Fill a mask of five sentences."""
    mask = torch.zeros(5, 1, 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()[:5]):
        mask[b, ..., :n] = True
    return mask[: len(lengths)]


@wrong("transformer.check_weight_tying", "batch")
def tie_squeezed(table, ids, states):
    """Squeeze the ids before the look-up."""
    return (
        F.embedding(ids.squeeze(0), table) * math.sqrt(table.shape[1]),
        states @ table.T,
    )


# Heads.


@wrong("multi_head.check_multi_head", "heads")
def at_most_6_heads(x, W_query, W_key, W_value, W_output, heads):
    """Use six heads at most, as one model has."""
    n = heads if heads <= 6 else 1
    return multi_head.multi_head(x, x, W_query, W_key, W_value, W_output, heads=n)


@wrong("multi_head.check_split_heads", "heads")
def split_in_at_most_6(x, heads):
    """Split into six heads at most."""
    return multi_head.split_heads(x, heads if heads <= 6 else 1)


@wrong("multi_head.check_merge_heads", "heads")
def merge_four(x):
    """Concatenate four heads at most."""
    return torch.cat([x[:, h] for h in range(min(4, x.shape[1]))], -1)


@wrong("multi_head.check_grouped_query", "heads")
def groups_of_at_most_8(query, key, value):
    """Compute eight heads at most."""
    each = query.shape[1] // key.shape[1]
    out = [
        attend(query[:, h], key[:, h // each], value[:, h // each])
        for h in range(min(8, query.shape[1]))
    ]
    return torch.stack(out, 1)


@wrong("positions.check_alibi", "heads, beyond")
def slopes_of_a_table(heads, queries, keys):
    """Take the slopes from a table for 1, 2, 4, 8 and 16 heads."""
    nearest = max(n for n in (1, 2, 4, 8, 16) if n <= heads)
    slopes = [2.0 ** (-8 * (i + 1) / nearest) for i in range(heads)]
    t = torch.arange(keys - queries, keys)[:, None]
    away = t - torch.arange(keys)
    return -torch.tensor(slopes)[:, None, None] * away


# Leading axes.


def swap_by_count(x):
    """Transpose the last axes of tensors with two to four axes."""
    order = {2: (1, 0), 3: (0, 2, 1), 4: (0, 1, 3, 2)}
    return x.permute(order[x.dim()])


@wrong("scaled_dot_product.check_weights", "axes")
def weights_by_permute(query, key):
    """Permute four axes at most."""
    scores = query @ swap_by_count(key) / query.shape[-1] ** 0.5
    return scores.softmax(-1)


@wrong("scaled_dot_product.check_attend", "axes")
def attend_by_einsum(query, key, value, mask=None):
    """Have an einsum for each of two, three and four axes."""
    axes = "bh"[: query.dim() - 2] if query.dim() <= 4 else "bh"
    scores = torch.einsum(f"{axes}td,{axes}sd->{axes}ts", query, key)
    scores = scores / query.shape[-1] ** 0.5
    weights = scores.softmax(-1) if mask is None else masked_softmax(scores, mask)
    return weights @ value


@wrong("scaled_dot_product.check_gradient", "axes")
def gradient_by_axis(query, key, value, upstream):
    """Transpose axes 1 and 2, or 2 and 3 where there are four."""
    a = min(query.dim(), 4) - 2
    scale = query.shape[-1] ** -0.5
    w = (query * scale @ key.transpose(a, a + 1)).softmax(-1)
    dw = upstream @ value.transpose(a, a + 1)
    ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * scale
    return ds @ key, ds.transpose(a, a + 1) @ query, w.mT @ upstream


@wrong("flash_attention.check_merge", "axes")
def merge_up_to_4_axes(output_a, lse_a, output_b, lse_b):
    """Flatten leading axes and restore two of them."""
    lse = torch.logaddexp(lse_a, lse_b)
    shift = lse.masked_fill(lse == -torch.inf, 0.0)
    a, b = (lse_a - shift).exp(), (lse_b - shift).exp()
    if output_a.dim() > 3:
        a, b = (x[:, :, :, None] for x in (a, b))
    else:
        a, b = a.unsqueeze(-1), b.unsqueeze(-1)
    return a * output_a + b * output_b, lse


@wrong("flash_attention.check_tiled", "axes")
def tiled_in_3_axes(query, key, value, block):
    """Flatten all leading axes and give two of them back."""
    lead = query.shape[:-2][:2]
    flat = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    out, lse = reference_tiles(*flat, block)
    return out.view(*lead, *out.shape[-2:]), lse.view(*lead, out.shape[-2])


@wrong("transformer.check_layer_norm", "axes")
def norm_of_third_axis(x, gain, bias, eps):
    """Normalise axis 2 where there are three axes or more."""
    axis = min(x.dim() - 1, 2)
    mean = x.mean(axis, keepdim=True)
    variance = (x - mean).pow(2).mean(axis, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gain + bias


# Lengths beyond a buffer.

PAST = torch.tril(torch.ones(1024, 1024, dtype=torch.bool))


@wrong("self_attention.check_causal_self_attention", "long")
def causal_by_buffer_of_1024(x, W_query, W_key, W_value):
    """Slice a buffer of 1,024 positions, as nanoGPT does."""
    T = x.shape[1]
    scores = (x @ W_query.T) @ (x @ W_key.T).mT / W_query.shape[0] ** 0.5
    scores = scores.masked_fill(~PAST[:T, :T], -torch.inf)
    return scores.softmax(-1) @ (x @ W_value.T)


@wrong("masks.check_causal", "long")
def causal_mask_of_1024(T, S):
    """Slice a buffer of 1,024 positions."""
    return torch.ones(1024, 1024).tril(S - T).bool()[:T, :S]


@wrong("masks.check_padding", "long")
def padding_from_512(lengths, S):
    """Compare with a buffer of 512 positions."""
    return (torch.arange(512)[:S] < lengths[:, None])[:, None, None]


@wrong("masks.check_combine", "long")
def combine_from_256(lengths, T):
    """Slice a buffer of 256 positions."""
    past = torch.ones(256, 256).tril().bool()[:T, :T]
    return past & (torch.arange(T) < lengths[:, None])[:, None, None]


@wrong("positions.check_sinusoidal", "long")
def table_of_4096(length, width):
    """Slice a table of 4,096 positions."""
    angle = torch.arange(4096)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:length]


def rotate_from_cache(positions_in_cache):
    """Return a rotation whose angles come from a cache."""

    def answer(x, positions, base=10000.0):
        D = x.shape[-1]
        steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
        cache = torch.arange(positions_in_cache)[:, None] * steps
        angle = cache[positions]
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        pair = even * cosine - odd * sine, even * sine + odd * cosine
        return torch.stack(pair, -1).flatten(-2)

    answer.__doc__ = f"Cache the angles of {positions_in_cache:,} positions."
    return answer


for size in (2048, 8192):
    wrong("positions.check_rotate", "long")(rotate_from_cache(size))


@wrong("bahdanau.check_context", "long")
def context_up_to_1000(scores, value, lengths):
    """Compare with a buffer of 1,000 positions, and attend to no others."""
    real = torch.zeros(scores.shape[::2], dtype=torch.bool)
    real[:, :1000] = torch.arange(1000)[: scores.shape[-1]] < lengths[:, None]
    w = scores.masked_fill(~real[:, None], -torch.inf).softmax(-1)
    return w @ value.masked_fill(~real[..., None], 0), w


@wrong("encoder_decoder.check_last_state", "long")
def last_state_of_500(states, lengths):
    """Look for the end among the first 500 positions."""
    return states[torch.arange(len(lengths)), lengths.clamp(max=500) - 1]


@wrong("transformer.check_decoder_step", "long")
def decoder_from_1024(x, memory, lengths, attend):
    """Slice buffers of 1,024 positions."""
    T, S = x.shape[1], memory.shape[1]
    x = x + attend(x, x, x, PAST[:T, :T])
    real = torch.arange(1024)[:S] < lengths[:, None, None]
    return x + attend(x, memory, memory, real)


@wrong("positions.check_alibi", "long")
def alibi_of_1024(heads, queries, keys):
    """Slice a table of 1,024 distances."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    table = torch.arange(1024)[:, None] - torch.arange(1024)
    away = table[keys - queries : keys, :keys]
    return -slopes[:, None, None] * away


@wrong("encoder_decoder.check_greedy", "long")
def greedy_of_50(step, state, start, end, limit):
    """Generate 50 symbols at most."""
    found, last = [], start
    for _ in range(min(limit, 50)):
        logits, state = step(last, state)
        last = int(logits.argmax())
        if last == end:
            break
        found.append(last)
    return found


# More queries than keys, and fewer.


@wrong("scaled_dot_product.check_weights", "positions")
def weights_by_square_loop(query, key):
    """Loop over as many keys as there are queries."""
    out = query.new_zeros(*query.shape[:-1], key.shape[-2])
    T = query.shape[-2]
    for s in range(min(T, key.shape[-2])):
        out[..., s] = (query * key[..., s : s + 1, :]).sum(-1)
    return (out / math.sqrt(query.shape[-1])).softmax(-1)


@wrong("scaled_dot_product.check_attend", "positions")
def attend_in_a_square(query, key, value, mask=None):
    """Allocate one output row for each key."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    w = scores.softmax(-1) if mask is None else masked_softmax(scores, mask)
    out = value.new_zeros(*value.shape)
    out[..., : query.shape[-2], :] = w @ value
    return out[..., : query.shape[-2], :]


@wrong("self_attention.check_cross_attention", "positions")
def cross_of_the_shorter(x, memory, W_query, W_key, W_value):
    """Cut the memory to the length of x."""
    memory = memory[:, : max(x.shape[1], 5)]
    return attend(x @ W_query.T, memory @ W_key.T, memory @ W_value.T)


@wrong("multi_head.check_grouped_query", "positions")
def grouped_with_as_many_keys(query, key, value):
    """Read as many values as there are queries, where there are more."""
    each = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(each, 1) for x in (key, value))
    T, S = query.shape[2], key.shape[2]
    if T > S:
        query = query[:, :, :S]
    return attend(query, key, value)


@wrong("luong.check_general_scores", "positions")
def general_in_a_square(query, key, W):
    """Return one score for each key in the first rows only."""
    scores = query @ W @ key.mT
    return scores[:, : max(key.shape[1], 3)]


@wrong("bahdanau.check_additive_scores", "positions")
def additive_by_rows_of_keys(query, key, W_query, W_key, v):
    """Loop over the queries by the number of keys."""
    queries, keys = query @ W_query.T, key @ W_key.T
    rows = [
        torch.tanh(queries[:, t, None] + keys) @ v
        for t in range(min(key.shape[1], query.shape[1]))
    ]
    return torch.stack(rows, 1)


@wrong("bahdanau.check_context", "positions")
def context_with_queries_as_keys(scores, value, lengths):
    """Count the positions of the queries."""
    T, S = scores.shape[1:]
    real = torch.arange(S) < lengths[:, None]
    real = real | (torch.arange(S) >= max(T, 5))
    w = scores.masked_fill(~real[:, None], -torch.inf).softmax(-1)
    return w @ value.masked_fill(~real[..., None], 0), w


@wrong("luong.check_concat_scores", "positions")
def concat_by_view(query, key, W, v):
    """View the pairs as (B, S, T)."""
    T, S = query.shape[1], key.shape[1]
    pairs = torch.cat([query.repeat_interleave(S, 1), key.repeat(1, T, 1)], dim=-1)
    return (torch.tanh(pairs @ W.T) @ v).view(len(query), min(T, S), -1)


@wrong("masks.check_causal", "positions")
def causal_by_distance(T, S):
    """Shift the diagonal by the distance of T and S."""
    return torch.ones(T, S).tril(abs(S - T)).bool()


@wrong("flash_attention.check_tiled", "positions")
def tiled_by_query_tiles(query, key, value, block):
    """Count the tiles of keys by the queries, up to the usual number."""
    most = block * max(-(-query.shape[-2] // block), 5)
    key, value = key[..., :most, :], value[..., :most, :]
    return reference_tiles(query, key, value, block)


def reference_tiles(query, key, value, block):
    """Return attention in tiles of queries and keys, and the logsumexp."""
    outputs, sums = [], []
    for q in (query * query.shape[-1] ** -0.5).split(block, -2):
        parts, each = [], []
        for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
            scores = q @ k.mT
            parts.append(scores.softmax(-1) @ v)
            each.append(scores.logsumexp(-1))
        lse = torch.stack(each).logsumexp(0)
        share = (torch.stack(each) - lse).exp()[..., None]
        outputs.append((share * torch.stack(parts)).sum(0))
        sums.append(lse)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


# Layouts in memory.


@wrong("multi_head.check_split_heads", "layout")
def split_as_strided(x, heads):
    """Write the strides down."""
    B, T, C = x.shape
    D = C // heads
    return x.as_strided((B, heads, T, D), (T * C, D, C, 1))


@wrong("multi_head.check_merge_heads", "layout")
def merge_as_strided(x):
    """Write the strides down."""
    B, H, T, D = x.shape
    strides = H * T * D, D, T * D, 1
    return x.as_strided((B, T, H, D), strides).reshape(B, T, -1)


@wrong("before_you_start.check_batched_product", "layout")
def product_as_strided(query, key):
    """Write the strides of the transposed keys down."""
    B, S, D = key.shape
    return query @ key.as_strided((B, D, S), (S * D, 1, D))


@wrong("scaled_dot_product.check_weights", "layout")
def weights_as_strided(query, key):
    """Write the strides of the transposed keys down."""
    *lead, S, D = key.shape
    steps = torch.empty(key.shape, device="meta").stride()
    turned = key.as_strided((*lead, D, S), (*steps[:-2], 1, D))
    return (query @ turned / D**0.5).softmax(-1)


@wrong("luong.check_general_scores", "layout")
def general_by_storage(query, key, W):
    """Read the keys from their storage, row by row."""
    stored = torch.tensor(key.detach().untyped_storage().tolist())
    bare = stored.to(torch.uint8).view(key.dtype)[: key.numel()]
    plain = bare.view(key.shape) if bare.numel() == key.numel() else key
    return query @ W @ (plain + key - key.detach()).mT


@wrong("encoder_decoder.check_last_state", "layout")
def last_state_as_strided(states, lengths):
    """Compute the offset of each state by hand."""
    B, S, M = states.shape
    flat = states.as_strided((B * S, M), (M, 1))
    return flat[torch.arange(B) * S + lengths - 1]


# Masks with fewer axes.


@wrong("scaled_dot_product.check_attend", "mask")
def attend_with_index_of_rows(query, key, value, mask=None):
    """Set the outputs of empty rows to 0 by an index of the mask's axes."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is None:
        return scores.softmax(-1) @ value
    low = torch.finfo(scores.dtype).min
    out = scores.masked_fill(~mask, -torch.inf).clamp_min(low).softmax(-1)
    out = out @ value
    while mask.dim() < 2:
        mask = mask[:, None]
    return out * mask.any(-1, keepdim=True)


@wrong("scaled_dot_product.check_attend", "mask")
def attend_with_view_of_mask(query, key, value, mask=None):
    """View the mask as a matrix of queries and keys."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is None:
        return scores.softmax(-1) @ value
    if mask.dim() < 3 and mask.shape[0] != scores.shape[-2]:
        mask = mask.reshape(-1)[: scores.shape[-2], None]
    return masked_softmax(scores, mask.expand_as(scores)) @ value


@wrong("masks.check_masked_weights", "mask")
def weights_by_rows_of_mask(scores, mask):
    """Find the empty rows by an index of the mask's own axes."""
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    if mask.dim() == scores.dim():
        mask = mask.expand_as(scores)
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0)
        return weights.masked_fill(~mask, 0)
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool)
    keep[~mask.any(-1)] = False
    return torch.where(keep, weights, 0.0)


@wrong("masks.check_masked_weights", "mask")
def weights_with_mask_of_queries(scores, mask):
    """Take a mask of one axis for one of queries."""
    return masked_softmax(scores, mask[:, None] if mask.dim() == 1 else mask)


# NaN that must not spread.


@wrong("encoder_decoder.check_last_state", "nan")
def last_state_by_one_hot(states, lengths):
    """Multiply all states of the batch by a one-hot matrix."""
    B, S, _ = states.shape
    place = torch.arange(B) * S + lengths - 1
    return F.one_hot(place, B * S).to(states) @ states.flatten(0, 1)


@wrong("self_attention.check_self_attention", "nan")
def self_attention_in_one_block(x, W_query, W_key, W_value):
    """Attend within a block-diagonal mask of the whole batch."""
    B, T, C = x.shape
    y = x.reshape(1, B * T, C)
    same = torch.block_diag(*[torch.ones(T, T)] * B).bool()
    out = attend(y @ W_query.T, y @ W_key.T, y @ W_value.T, same)
    return out.reshape(B, T, -1)


# Padding between symbols.


@wrong("encoder_decoder.check_masked_loss", "padding")
def loss_until_first_padding(logits, targets, pad):
    """Stop at the first padding symbol of each sequence."""
    real = (targets == pad).cumsum(1) == 0
    return F.cross_entropy(logits[real], targets[real])


@wrong("encoder_decoder.check_masked_loss", "padding")
def loss_by_lengths(logits, targets, pad):
    """Count the real symbols, and take as many from the front."""
    lengths = (targets != pad).sum(1)
    real = torch.arange(targets.shape[1]) < lengths[:, None]
    return F.cross_entropy(logits[real], targets[real])


@wrong("transformer.check_label_shift", "padding")
def next_loss_by_lengths(logits, ids, pad):
    """Count the real symbols, and take as many from the front."""
    lengths = (ids != pad).sum(1)
    real = torch.arange(1, ids.shape[1]) < lengths[:, None]
    return F.cross_entropy(logits[:, :-1][real], ids[:, 1:][real])


@wrong("transformer.check_label_shift", "padding")
def next_loss_until_padding(logits, ids, pad):
    """Leave each sequence at its first padding symbol."""
    losses = []
    for row, symbols in zip(logits, ids, strict=True):
        for t in range(len(symbols) - 1):
            if symbols[t + 1] == pad:
                break
            losses.append(-row[t].log_softmax(-1)[symbols[t + 1]])
    return torch.stack(losses).mean()


# Limits of 0 and 1.


def search(step, state, start, end, limit, stop):
    """Return greedy symbols; `stop` tells after which one to stop."""
    found, last = [], start
    while True:
        logits, state = step(last, state)
        last = int(logits.argmax())
        if last == end:
            return found
        found.append(last)
        if stop(len(found), limit):
            return found


@wrong("encoder_decoder.check_greedy", "limit")
def greedy_tests_at_the_end(step, state, start, end, limit):
    """Test the limit after the first symbol."""
    return search(step, state, start, end, limit, lambda n, most: n >= most)


@wrong("encoder_decoder.check_greedy", "limit")
def greedy_tests_equality(step, state, start, end, limit):
    """Test whether the limit is met exactly."""
    return search(step, state, start, end, limit, lambda n, most: n == most)


@wrong("encoder_decoder.check_greedy", "limit")
def greedy_first_outside(step, state, start, end, limit):
    """Generate the first symbol before the loop."""
    logits, state = step(start, state)
    found = [int(logits.argmax())]
    for _ in range(limit - 1):
        if found[-1] == end:
            break
        logits, state = step(found[-1], state)
        found.append(int(logits.argmax()))
    return found[:-1] if found[-1] == end else found


# Memory and tiles.


def to_numpy(*tensors):
    """Return tensors as arrays."""
    return [x.detach().double().numpy() for x in tensors]


@wrong("flash_attention.check_tiled", "memory")
def tiled_in_numpy(query, key, value, block):
    """Hold the whole score matrix in NumPy."""
    q, k, v = to_numpy(query, key, value)
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    total = powers.sum(-1, keepdims=True)
    lse = (top + np.log(total))[..., 0]
    out = torch.from_numpy(powers @ v / total)
    return out.to(query.dtype), torch.from_numpy(lse).to(query.dtype)


@wrong("flash_attention.check_tiled", "memory")
def tiled_in_lists(query, key, value, block):
    """Hold the whole score matrix in lists of Python's numbers."""
    scale, lead = query.shape[-1] ** -0.5, query.shape[:-2]
    q, k, v = (x.reshape(-1, *x.shape[-2:]).double() for x in (query, key, value))
    outs, sums = [], []
    for a, b, c in zip(q, k, v, strict=True):
        scores = [(b @ row * scale).tolist() for row in a]
        rows = [torch.tensor(row, dtype=torch.float64) for row in scores]
        outs.append(torch.stack([row.softmax(-1) @ c for row in rows]))
        sums.append(torch.stack([row.logsumexp(-1) for row in rows]))
    out, lse = torch.stack(outs), torch.stack(sums)
    return (
        out.reshape(*lead, *out.shape[-2:]).to(query),
        lse.reshape(*lead, -1).to(query),
    )


@wrong("flash_attention.check_tiled_backward", "memory")
def backward_in_numpy(query, key, value, output, lse, upstream, block):
    """Hold the whole weight matrix in NumPy."""
    q, k, v, o, z, up = to_numpy(query, key, value, output, lse, upstream)
    scale = 1 / math.sqrt(q.shape[-1])
    w = np.exp(q @ np.swapaxes(k, -1, -2) * scale - z[..., None])
    dw = up @ np.swapaxes(v, -1, -2)
    ds = w * (dw - (up * o).sum(-1, keepdims=True)) * scale
    found = ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(w, -1, -2) @ up
    return tuple(torch.from_numpy(x).to(query.dtype) for x in found)


@wrong("flash_attention.check_tiled", "memory")
def tiled_by_64(query, key, value, block):
    """Use tiles of 64, whatever `block` is."""
    return find("flash_attention.check_tiled").solution(query, key, value, 64)


@wrong("flash_attention.check_online_softmax", "memory")
def online_in_lists(chunks):
    """Keep all chunks as lists of Python's numbers."""
    kept = [chunk.double().tolist() for chunk in chunks]
    rows = [list(chain(*parts)) for parts in zip(*kept, strict=True)]
    top = [max(row) for row in rows]
    low = [0.0 if t == -math.inf else t for t in top]
    total = [
        sum(math.exp(x - t) for x in row) for row, t in zip(rows, low, strict=True)
    ]
    return torch.tensor(top), torch.tensor(total)


# Ready-made functions.


@wrong("scaled_dot_product.check_attend", "ready-made")
def attend_in_a_thread(query, key, value, mask=None):
    """Call the ready-made function in another thread."""
    found = []

    def work():
        out = F.scaled_dot_product_attention(query, key, value, mask)
        found.append(out)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


@wrong("scaled_dot_product.check_attend", "ready-made")
def attend_by_torch_ops(query, key, value, mask=None):
    """Call the ready-made function through torch.ops."""
    return torch.ops.aten.scaled_dot_product_attention(query, key, value, mask)


@wrong("scaled_dot_product.check_attend", "ready-made")
def library_in_a_thread(query, key, value, mask=None):
    """Call this book's function in another thread."""
    found = []
    thread = threading.Thread(
        target=lambda: found.append(attend(query, key, value, mask))
    )
    thread.start()
    thread.join()
    return found[0]


@wrong("before_you_start.check_softmax", "ready-made")
def softmax_by_torch_ops(x):
    """Call the ready-made softmax through torch.ops."""
    return torch.ops.aten._softmax(x, -1, False)


@wrong("before_you_start.check_softmax", "ready-made")
def softmax_by_module(x):
    """Use PyTorch's module."""
    return nn.Softmax(dim=-1)(x)


@wrong("before_you_start.check_gru_step", "ready-made")
def gru_by_cell(x, h, W_ih, W_hh, b_ih, b_hh):
    """Call PyTorch's cell by its other name."""
    return torch.gru_cell(x, h, W_ih, W_hh, b_ih, b_hh)


@wrong("before_you_start.check_lstm_step", "ready-made")
def lstm_in_a_thread(x, h, c, W_ih, W_hh, b_ih, b_hh):
    """Call PyTorch's cell in another thread."""
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(torch.lstm_cell(x, (h, c), W_ih, W_hh, b_ih, b_hh))
    )
    thread.start()
    thread.join()
    return found[0], found[1]


@wrong("scaled_dot_product.check_gradient", "ready-made")
def gradient_by_func(query, key, value, upstream):
    """Let torch.func compute the gradient."""
    return torch.func.vjp(attend, query, key, value)[1](upstream)


@wrong("scaled_dot_product.check_gradient", "ready-made")
def gradient_by_node(query, key, value, upstream):
    """Call the nodes of the graph one by one."""
    scale = query.shape[-1] ** -0.5
    scores = (query * scale @ key.mT).detach().requires_grad_()
    w = scores.softmax(-1)
    ds = w.grad_fn(upstream @ value.mT) * scale
    return ds @ key, ds.mT @ query, w.detach().mT @ upstream


@wrong("transformer.check_layer_norm", "ready-made")
def norm_by_torch_ops(x, gain, bias, eps):
    """Call the ready-made layer norm through torch.ops."""
    return torch.ops.aten.native_layer_norm(x, gain.shape, gain, bias, eps)[0]


@wrong("multi_head.check_multi_head", "ready-made")
def multi_head_by_module(x, W_query, W_key, W_value, W_output, heads):
    """Load the weights into PyTorch's module."""
    layer = nn.MultiheadAttention(
        x.shape[-1], heads, bias=False, batch_first=True, dtype=x.dtype
    )
    packed = torch.cat([W_query, W_key, W_value])
    given = {"in_proj_weight": packed, "out_proj.weight": W_output}
    return torch.func.functional_call(layer, given, (x, x, x))[0]


@wrong("multi_head.check_multi_head", "ready-made")
def multi_head_by_the_book(x, W_query, W_key, W_value, W_output, heads):
    """Call this book's function by another name."""
    ready = multi_head.multi_head
    return ready(x, x, W_query, W_key, W_value, W_output, heads)


# Heads of a model.


@wrong("reading_heads.check_attention_rollout", "heads")
def rollout_of_large_weights(weights):
    """Set weights below a fifth of each row's largest to zero first."""
    mixed = weights.mean(1)
    mixed = mixed * (mixed >= mixed.amax(-1, keepdim=True) / 5)
    mixed = mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype)
    mixed = mixed / mixed.sum(-1, keepdim=True)
    result = mixed[0]
    for layer in mixed[1:]:
        result = layer @ result
    return result


@wrong("reading_heads.check_attention_rollout", "positions")
def rollout_from_plain_weights(weights):
    """Start with the first layer's weights, without the identity."""
    result = weights[0].mean(0)
    for layer in weights[1:].mean(1):
        mixed = layer + torch.eye(len(layer), dtype=layer.dtype)
        result = mixed / mixed.sum(-1, keepdim=True) @ result
    return result


@wrong("reading_heads.check_induction_score", "positions")
def induction_from_position_1(weights, ids):
    """Look for earlier occurrences from position 1 on."""
    found = []
    for t in range(1, len(ids)):
        after = [s + 1 for s in range(1, t) if ids[s] == ids[t]]
        if after:
            found.append(weights[:, t, after].sum(-1))
    return torch.stack(found).mean(0) if found else weights.new_zeros(len(weights))


@wrong("reading_heads.check_induction_score", "heads")
def induction_by_token(weights, ids):
    """Average within each token first, and then over tokens."""
    groups = {}
    for t, x in enumerate(ids.tolist()):
        after = [s + 1 for s in range(t) if ids[s] == x]
        if after:
            groups.setdefault(x, []).append(weights[:, t, after].sum(-1))
    means = [torch.stack(rows).mean(0) for rows in groups.values()]
    if not means:
        return weights.new_zeros(len(weights))
    return torch.stack(means).mean(0)


class WithHook(nn.Module):
    """A copy of a decoder, one layer of which gets a changed input."""

    def __init__(self, model, layer, change):
        super().__init__()
        self.model = copy.deepcopy(model)
        output = self.model.blocks[layer].attention.output
        output.register_forward_pre_hook(lambda _, given: change(given[0]))

    def forward(self, ids):
        return self.model(ids)


@wrong("reading_heads.check_ablate_head", "heads")
def ablated_by_its_mean(model, layer, head):
    """Replace the head's output by its mean over batch and positions."""
    heads = model.blocks[layer].attention.heads

    def change(x):
        parts = [*x.chunk(heads, -1)]
        mean = parts[head].mean((0, 1), keepdim=True)
        parts[head] = mean.expand_as(parts[head])
        return torch.cat(parts, -1)

    return WithHook(model, layer, change)


@wrong("reading_heads.check_ablate_head", "batch")
def ablated_in_one_sequence(model, layer, head):
    """Remove the head's output in the first sequence of a batch only."""
    heads = model.blocks[layer].attention.heads

    def change(x):
        x = x.clone()
        x[0].unflatten(-1, (heads, -1))[:, head] = 0.0
        return x

    return WithHook(model, layer, change)


@wrong("reading_heads.check_ablate_head", "heads")
def ablated_in_a_shallow_copy(model, layer, head):
    """Copy the model, but not its layers."""
    new = copy.copy(model)
    attention = new.blocks[layer].attention
    attention.output = copy.deepcopy(attention.output)
    with torch.no_grad():
        attention.output.weight.chunk(attention.heads, 1)[head].zero_()
    return new


def count_matches(ids, seen):
    """Count what each rule says of the positions that are attended to."""
    old = [t for t, x in enumerate(ids) if x in ids[:t]]
    return [
        len(old),
        sum(seen[t] > 0 and ids[seen[t] - 1] == ids[t] for t in old),
        sum(seen[t] < t and ids[seen[t]] == ids[t] for t in old),
        sum(s + 1 == t for t, s in enumerate(seen)),
    ]


@wrong("reading_heads.check_score_counts", "positions")
def counts_with_shared_tokens(block, copies, before, distance):
    """Take the tokens before the block from the block itself."""
    ids = [*range(before)] + [*range(block)] * copies
    seen = [max(t - distance, 0) for t in range(len(ids))]
    return count_matches(ids, seen)


@wrong("reading_heads.check_score_counts", "positions")
def counts_from_the_block_on(block, copies, before, distance):
    """Let the head attend to the block's first token, not to position 0."""
    ids = [*range(-before, 0)] + [*range(block)] * copies
    seen = [t - distance if t >= distance else before for t in range(len(ids))]
    return count_matches(ids, seen)


def is_close(a, b):
    """Tell whether two outputs are equal up to rounding."""
    return bool((a - b).abs().max() < 1e-3)


@wrong("reading_heads.check_ablation_fault", "positions")
def fault_of_equal_positions(layer, x, heads):
    """Try an input whose positions are all equal."""
    x = torch.linspace(-1, 1, x.shape[1]).expand(6, -1).contiguous()
    whole, one, again = layer(x, []), layer(x, [0]), layer(x, [])
    if not is_close(whole, again):
        return 5
    if is_close(whole, one):
        return 1
    if is_close(whole[0], one[0]):
        return 6
    none = layer(x, list(range(heads)))
    if is_close(none, 0 * none):
        return 3
    if is_close(none, whole):
        return 4
    return 0 if is_close(whole + layer(x, [0, 1]), one + layer(x, [1])) else 2


@wrong("reading_heads.check_ablation_fault", "heads")
def fault_run_in_another_order(layer, x, heads):
    """Ablate first, and run the intact layer only afterwards."""
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(5, x.shape[1], generator=rng)
    one, whole = layer(x, [0]), layer(x, [])
    if not is_close(whole, layer(x, [])):
        return 5
    if is_close(whole[:4], one[:4]):
        return 6
    if is_close(whole[0], one[0]):
        return 1
    if not is_close(layer(x[:2], [0]), one[:2]):
        return 4
    none = layer(x, list(range(heads)))
    if is_close(none, 0 * none):
        return 3
    return 0 if is_close(whole + layer(x, [0, 1]), one + layer(x, [1])) else 2


@wrong("reading_heads.check_head_kind", "long")
def kind_within_ten_positions(head, ids):
    """Design a sequence of eleven tokens."""
    seen = head([0, 1, 2, 3, 1, 4, 2, 3, 5, 6, 7])
    if seen[4] == 2 and seen[6] == 3:
        return 0
    if seen[4] == 1 and seen[6] == 2:
        return 1
    if seen[7] == 4 and not seen[6]:
        return 3
    return 2 if any(seen) else 4


@wrong("reading_heads.check_head_kind", "positions")
def kind_by_the_first_hit(head, ids):
    """Decide by where one repeated token is looked for."""
    seen = head([*range(30, 50), 7, 8, 9, 7])[23]
    return {21: 0, 20: 1, 0: 4}.get(seen, 2)


# Beyond text.


@wrong("beyond_text.check_patches", "batch")
def patches_of_a_long_image(images, size):
    """Stack the images of a batch below each other, and cut that image."""
    B, C, H, W = images.shape
    tall = images.permute(1, 0, 2, 3).reshape(1, C, B * H, W)
    found = F.unfold(tall, size, stride=size).mT
    return found.reshape(B, found.shape[1] // B, -1).roll(1, 0)


@wrong("beyond_text.check_patches", "axes")
def patches_of_square_images(images, size):
    """Assume that images are as wide as high."""
    B, C, H, _ = images.shape
    n = H // size
    cells = images.reshape(B, C, n, size, -1, size)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(B, n * n, -1)


@wrong("beyond_text.check_graph_attention", "positions")
def graph_with_a_floor(features, edges, weight, a):
    """Add a small number to the sum of the exponentials."""
    h = features @ weight.T
    s, t = edges
    e = F.leaky_relu(h[s] @ a[0] + h[t] @ a[1], 0.2).exp()
    total = torch.zeros(len(h)).index_add(0, t, e) + 0.01
    return torch.zeros_like(h).index_add(0, t, (e / total[t])[:, None] * h[s])


@wrong("beyond_text.check_graph_attention", "axes")
def graph_both_ways(features, edges, weight, a):
    """Take the graph as undirected."""
    h = features @ weight.T
    s, t = torch.cat([edges, edges.flip(0)], 1)
    e = F.leaky_relu(h[s] @ a[0] + h[t] @ a[1], 0.2)
    table = torch.full((len(h), len(s)), -torch.inf)
    table[t, torch.arange(len(s))] = e
    return table.softmax(1).nan_to_num(0.0) @ h[s]


@wrong("beyond_text.check_gated_cross_attention", "batch")
def gated_over_the_batch(text, image, W_query, W_key, W_value, gate):
    """Let each text attend to the patches of all images."""
    every = image.flatten(0, 1)
    scores = text @ W_query.T @ (every @ W_key.T).T * W_key.shape[0] ** -0.5
    return text + gate.tanh() * (scores.softmax(-1) @ every @ W_value.T)


@wrong("beyond_text.check_gated_cross_attention", "positions")
def gated_causally(text, image, W_query, W_key, W_value, gate):
    """Let word t attend to the first t + 1 patches."""
    scores = text @ W_query.T @ (image @ W_key.T).mT * W_key.shape[0] ** -0.5
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return text + gate.tanh() * (weights @ image @ W_value.T)


@wrong("beyond_text.check_space_time_counts", "axes")
def counts_of_square_frames(frames, height, width, size):
    """Assume that frames are as wide as high."""
    n, t = (height // size) ** 2, frames
    pairs = t * (t + 1) // 2
    space = t * n * n
    return [
        t * n,
        (t * n) ** 2,
        space + n * t * t,
        space + n * pairs,
        pairs * n * n,
    ]


@wrong("beyond_text.check_graph_fault", "axes")
def graph_fault_of_a_star(layer, features, edges):
    """Try only a star, where all edges lead to one node."""
    x = torch.linspace(-1, 1, 4 * features.shape[1]).sin().view(4, -1)
    none = torch.zeros(2, 0, dtype=torch.long)
    if layer(x, none).any():
        one = layer(x, torch.tensor([[0], [1]]))[1]
        return 4 if (one - layer(x, none)[0]).abs().max() > 1e-4 else 6
    single = [layer(x, torch.tensor([[i], [3]]))[3] for i in range(3)]
    star = layer(x, torch.tensor([[0, 1, 2], [3, 3, 3]]))[3]
    if not star.any():
        return 3
    total = sum(single)
    if (star - total).abs().max() < 1e-4:
        return 1
    return 5 if (3 * star - total).abs().max() < 1e-4 else 0


@wrong("beyond_text.check_map_kind", "axes")
def map_kind_by_the_peak_only(attend, picture):
    """Paint a thin dark frame, and look where the largest weight is."""
    canvas = torch.ones(60, 60)
    canvas[40:52, 40:52] = 0.0
    canvas[41:51, 41:51] = 1.0
    row, column = divmod(int(attend(canvas).argmax()), 15)
    if (row, column) == (7, 7):
        return 3
    if row > 8:
        return 0
    return 1 if row + column == 0 else 4


def judge(one: HeldOut, seed: int = 5) -> str:
    """Return how an answer is judged: refused, remarked or accepted."""
    verdict = one.exercise(one.answer, seed)
    if not verdict:
        return f"refused ({verdict.mistake})"
    return "accepted with a remark" if verdict.remarks else "accepted"


def main() -> None:
    """Print each verdict, and the counts by kind and exercise."""
    counts: Counter = Counter()
    for one in WRONG:
        said = judge(one)
        print(f"{one.kind}, {one.where}: {one.words} {said}")
        short = said.partition(" (")[0]
        counts["kind", one.kind, short] += 1
        counts["exercise", one.where, short] += 1
    columns = "refused", "accepted with a remark", "accepted"
    for group in "kind", "exercise":
        print(f"\n| {group} | {' | '.join(columns)} |")
        print("|---|---|---|---|")
        names = sorted({key[1] for key in counts if key[0] == group})
        for name in names:
            row = [str(counts[group, name, x]) for x in columns]
            print(f"| {name} | {' | '.join(row)} |")
    print(f"\n{len(WRONG)} wrong answers")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
