"""Right answers to the exercises of chapters/06_multi_head."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises import multi_head as checks
from right_answers import in_double


def split_by_loop(x, heads):
    D = x.shape[-1] // heads
    out = x.new_empty(len(x), heads, x.shape[1], D)
    for h in range(heads):
        out[:, h] = x[:, :, h * D : (h + 1) * D]
    return out


def split_through_columns(x, heads):
    B, T, C = x.shape
    return x.mT.reshape(B, heads, C // heads, T).mT


def split_by_identity(x, heads):
    C = x.shape[-1]
    pick = torch.eye(C, dtype=x.dtype).reshape(heads, C // heads, C)
    return torch.einsum("btc,hdc->bhtd", x, pick)


def merge_by_loop(x):
    B, H, T, D = x.shape
    out = x.new_zeros(B, T, H * D)
    for h in range(H):
        out[:, :, h * D : (h + 1) * D] += x[:, h]
    return out


def merge_by_identity(x):
    _, H, _, D = x.shape
    place = torch.eye(H * D, dtype=x.dtype).reshape(H, D, H * D)
    return torch.einsum("bhtd,hdc->btc", x, place)


def loop(x, W_query, W_key, W_value, W_output, heads):
    D = x.shape[-1] // heads
    outputs = []
    for h in range(heads):
        rows = slice(h * D, (h + 1) * D)
        query, key = x @ W_query[rows].T, x @ W_key[rows].T
        weights = (query @ key.mT / math.sqrt(D)).softmax(-1)
        outputs.append(weights @ (x @ W_value[rows].T))
    return torch.cat(outputs, dim=-1) @ W_output.T


def summed_blocks(x, W_query, W_key, W_value, W_output, heads):
    """Each head through its own block of the output projection, added up."""
    D = x.shape[-1] // heads
    total = torch.zeros_like(x)
    for h in range(heads):
        rows = slice(h * D, (h + 1) * D)
        looked = attend(*(x @ W[rows].T for W in (W_query, W_key, W_value)))
        total = total + looked @ W_output[:, rows].T
    return total


def einsummed(x, W_query, W_key, W_value, W_output, heads):
    query, key, value = (
        torch.einsum("btc,hdc->bhtd", x, W.unflatten(0, (heads, -1)))
        for W in (W_query, W_key, W_value)
    )
    scores = torch.einsum("bhtd,bhsd->bhts", query, key)
    weights = (scores / np.sqrt(query.shape[-1])).softmax(-1)
    looked = torch.einsum("bhts,bhsd->bthd", weights, value)
    return torch.einsum(
        "bthd,ohd->bto", looked, W_output.unflatten(1, (heads, -1))
    )


def heads_in_the_batch(x, W_query, W_key, W_value, W_output, heads):
    B, T, C = x.shape
    query, key, value = (
        F.linear(x, W).view(B, T, heads, -1).transpose(1, 2).reshape(
            B * heads, T, -1
        )
        for W in (W_query, W_key, W_value)
    )  # fmt: skip
    scores = torch.bmm(query * (C // heads) ** -0.5, key.transpose(1, 2))
    looked = torch.bmm(F.softmax(scores, dim=-1), value)
    looked = looked.view(B, heads, T, -1).transpose(1, 2).contiguous()
    return F.linear(looked.view(B, T, C), W_output)


def one_big_matrix(x, W_query, W_key, W_value, W_output, heads):
    B, T, _ = x.shape
    projected = x @ torch.cat([W_query, W_key, W_value]).T
    query, key, value = projected.view(B, T, 3, heads, -1).permute(
        2, 0, 3, 1, 4
    )
    return merge_heads(attend(query, key, value)) @ W_output.T


class Heads(nn.Module):
    def forward(self, x, W_query, W_key, W_value, W_output, heads):
        query, key, value = (
            split_through_columns(F.linear(x, W), heads)
            for W in (W_query, W_key, W_value)
        )
        return F.linear(merge_by_loop(attend(query, key, value)), W_output)


def grouped_loop(query, key, value):
    each = query.shape[1] // key.shape[1]
    return torch.stack(
        [
            attend(query[:, h], key[:, h // each], value[:, h // each])
            for h in range(query.shape[1])
        ],
        dim=1,
    )


def grouped_by_axis(query, key, value):
    query = query.unflatten(1, (key.shape[1], -1))
    scores = query @ key[:, :, None].mT / math.sqrt(query.shape[-1])
    return (scores.softmax(-1) @ value[:, :, None]).flatten(1, 2)


def grouped_stacked(query, key, value):
    B, H, T, D = query.shape
    G = key.shape[1]
    long = query.reshape(B, G, H // G * T, D)
    return attend(long, key, value).reshape(B, H, T, -1)


def grouped_einsum(query, key, value):
    B, H, T, D = query.shape
    query = query.reshape(B, key.shape[1], -1, T, D)
    scores = torch.einsum("bgrtd,bgsd->bgrts", query, key) * D**-0.5
    output = torch.einsum("bgrts,bgse->bgrte", scores.softmax(-1), value)
    return output.reshape(B, H, T, -1)


def grouped_by_expand(query, key, value):
    each = query.shape[1] // key.shape[1]
    key, value = (
        x[:, :, None].expand(-1, -1, each, -1, -1).flatten(1, 2)
        for x in (key, value)
    )
    return attend(query, key, value)


def grouped_by_chunks(query, key, value):
    parts = (
        attend(q, k, v)
        for q, k, v in zip(
            query.chunk(key.shape[1], dim=1),
            key.split(1, dim=1),
            value.split(1, dim=1),
            strict=True,
        )
    )
    return torch.cat([*parts], dim=1)


ANSWERS = {
    "check_split_heads": (
        ("a loop", split_by_loop),
        ("through the columns", split_through_columns),
        ("by an identity matrix", split_by_identity),
        ("chunks", lambda x, H: torch.stack(x.chunk(H, dim=-1), dim=1)),
        (
            "view, then permute",
            lambda x, H: x.view(*x.shape[:2], H, -1).permute(0, 2, 1, 3),
        ),
        (
            "contiguous",
            lambda x, H: (
                x.reshape(len(x), -1, H, x.shape[-1] // H)
                .swapaxes(1, 2)
                .contiguous()
            ),
        ),
    ),
    "check_merge_heads": (
        ("a loop", merge_by_loop),
        ("by an identity matrix", merge_by_identity),
        ("cat", lambda x: torch.cat(x.unbind(1), dim=-1)),
        (
            "contiguous, then view",
            lambda x: (
                x.transpose(1, 2)
                .contiguous()
                .view(len(x), -1, x.shape[1] * x.shape[3])
            ),
        ),
        ("movedim", lambda x: x.movedim(1, 2).flatten(start_dim=2)),
        (
            "hstack of the turned",
            lambda x: torch.hstack([*x.mT.unbind(1)]).mT,
        ),
    ),
    "check_multi_head": (
        ("a loop", loop),
        ("a sum of blocks", summed_blocks),
        ("einsum", einsummed),
        ("heads in the batch", heads_in_the_batch),
        ("one big matrix", one_big_matrix),
        ("double inside", in_double(checks.check_multi_head.solution)),
        ("a module", Heads()),
        (
            "the loop's own exercise",
            lambda x, Q, K, V, W, H: F.linear(
                merge_heads(
                    attend(*(split_heads(x @ M.T, H) for M in (Q, K, V)))
                ),
                W,
            ),
        ),
    ),
    "check_grouped_query": (
        ("a loop", grouped_loop),
        ("an axis of groups", grouped_by_axis),
        ("queries one below the other", grouped_stacked),
        ("einsum", grouped_einsum),
        ("expand", grouped_by_expand),
        ("chunks", grouped_by_chunks),
        ("double inside", in_double(checks.check_grouped_query.solution)),
    ),
}
