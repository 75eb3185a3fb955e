"""Right answers to the exercises of chapters/05_self_attention."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention.scaled_dot_product import attend


def cross_by_loops(x, memory, W_query, W_key, W_value):
    outputs = []
    for b in range(x.shape[0]):
        rows = []
        for t in range(x.shape[1]):
            query = W_query @ x[b, t]
            scores = torch.stack([query @ (W_key @ m) for m in memory[b]])
            weights = torch.softmax(scores / math.sqrt(len(query)), dim=0)
            rows.append(weights @ (memory[b] @ W_value.T))
        outputs.append(torch.stack(rows))
    return torch.stack(outputs)


def cross_by_einsum(x, memory, W_query, W_key, W_value):
    query = torch.einsum("btc,dc->btd", x, W_query)
    key = torch.einsum("bsm,dm->bsd", memory, W_key)
    value = torch.einsum("bsm,em->bse", memory, W_value)
    scores = torch.einsum("btd,bsd->bts", query, key) / np.sqrt(key.shape[-1])
    return torch.einsum("bts,bse->bte", scores.softmax(-1), value)


def cross_in_double(x, memory, W_query, W_key, W_value):
    wide = (z.double() for z in (x, memory, W_query, W_key, W_value))
    return cross_by_einsum(*wide).to(x.dtype)


def cross_by_powers(x, memory, W_query, W_key, W_value):
    query, key = F.linear(x, W_query), F.linear(memory, W_key)
    scores = torch.bmm(query * query.shape[-1] ** -0.5, key.transpose(1, 2))
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)) @ F.linear(memory, W_value)


def cross_by_reference(x, memory, W_query, W_key, W_value):
    return attend(x @ W_query.T, memory @ W_key.T, memory @ W_value.T)


class Crossing(nn.Module):
    """Module style, and the matrices put into linear layers' places."""

    def forward(self, x, memory, W_query, W_key, W_value):
        query, key, value = (
            F.linear(z, W)
            for z, W in ((x, W_query), (memory, W_key), (memory, W_value))
        )
        scores = torch.matmul(query, key.permute(0, 2, 1))
        return torch.matmul(F.softmax(scores / key.size(-1) ** 0.5, 2), value)


def selfish(cross):
    return lambda x, *matrices: cross(x, x, *matrices)


def self_with_one_product(x, W_query, W_key, W_value):
    D, E = W_query.shape[0], W_value.shape[0]
    every = x @ torch.cat([W_query, W_key, W_value]).T
    query, key, value = every.split([D, D, E], dim=-1)
    return (query @ key.mT * D**-0.5).softmax(-1) @ value


def causal_by_prefixes(x, W_query, W_key, W_value):
    rows = [
        self_with_one_product(x[:, : t + 1], W_query, W_key, W_value)[:, -1]
        for t in range(x.shape[1])
    ]
    return torch.stack(rows, dim=1)


def causal_by_buffer(x, W_query, W_key, W_value):
    T = x.size(1)
    hidden = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
    scores = (x @ W_query.T) @ (x @ W_key.T).mT / W_query.size(0) ** 0.5
    return torch.softmax(scores + hidden, dim=-1) @ (x @ W_value.T)


def causal_by_places(x, W_query, W_key, W_value):
    places = torch.arange(x.shape[1])
    seen = places[None, :] <= places[:, None]
    scores = torch.einsum("btd,bsd->bts", x @ W_query.T, x @ W_key.T)
    scores = torch.where(seen, scores * W_key.shape[0] ** -0.5, -torch.inf)
    return scores.softmax(-1) @ (x @ W_value.T)


def causal_by_renormalising(x, W_query, W_key, W_value):
    scores = (x @ W_query.T) @ (x @ W_key.T).mT * W_query.shape[0] ** -0.5
    seen = torch.ones_like(scores).tril()
    # The largest *visible* score is subtracted, in double precision.
    wide = scores.double().masked_fill(seen == 0, -torch.inf)
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return (weights @ (x @ W_value.T).double()).to(x.dtype)


def causal_flipped(x, W_query, W_key, W_value):
    turned = x.flip(1)
    query, key, value = (turned @ W.T for W in (W_query, W_key, W_value))
    seen = torch.ones(x.shape[1], x.shape[1]).triu().bool()
    scores = (query @ key.mT / key.shape[-1] ** 0.5).masked_fill(
        ~seen, -torch.inf
    )
    return (scores.softmax(-1) @ value).flip(1)


CROSS = (
    ("loops", cross_by_loops),
    ("einsum", cross_by_einsum),
    ("double inside", cross_in_double),
    ("softmax by hand", cross_by_powers),
    ("the reference implementation of chapter 4", cross_by_reference),
    ("a module", Crossing()),
)
ANSWERS = {
    "check_self_attention": (
        *((how, selfish(answer)) for how, answer in CROSS),
        ("one product for all three", self_with_one_product),
    ),
    "check_cross_attention": CROSS,
    "check_causal_self_attention": (
        ("one beginning at a time", causal_by_prefixes),
        ("minus infinity added", causal_by_buffer),
        ("places compared", causal_by_places),
        ("powers in double", causal_by_renormalising),
        ("read from the end", causal_flipped),
    ),
}
