"""Right answers to the exercises of chapters/03_luong."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import luong as checks
from right_answers import in_double


def general_by_loops(query, key, W):
    rows = []
    for t in range(query.shape[1]):
        row = [
            ((query[:, t] @ W) * key[:, s]).sum(-1) for s in range(key.shape[1])
        ]
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=1)


def general_by_pairs(query, key, W):
    t, s = query.shape[1], key.shape[1]
    return F.bilinear(
        query[:, :, None].expand(-1, -1, s, -1).contiguous(),
        key[:, None].expand(-1, t, -1, -1).contiguous(),
        W[None],
    )[..., 0]


def general_by_svd(query, key, W):
    U, sizes, V = torch.linalg.svd(W.double(), full_matrices=False)
    left, right = query.double() @ (U * sizes), key.double() @ V.mT
    return (left @ right.mT).to(query.dtype)


def general_turned(query, key, W):
    return (key @ (query @ W).mT).mT


class General(nn.Module):
    """Module style: the keys go through a linear layer once."""

    def forward(self, query, key, W):
        return torch.bmm(query, F.linear(key, W).transpose(1, 2))


def general_per_sentence(query, key, W):
    return torch.stack([q @ W @ k.T for q, k in zip(query, key, strict=True)])


def joined(query, key):
    t, s = query.shape[1], key.shape[1]
    left = query.repeat_interleave(s, dim=1)
    right = key.repeat(1, t, 1)
    return torch.cat([left, right], dim=-1).unflatten(1, (t, s))


def concat_by_pairs(query, key, W, v):
    return torch.tanh(F.linear(joined(query, key), W)) @ v


def concat_by_loops(query, key, W, v):
    rows = []
    for t in range(query.shape[1]):
        row = []
        for s in range(key.shape[1]):
            pair = torch.cat([query[:, t], key[:, s]], dim=-1)
            row.append((torch.tanh(pair @ W.T) * v).sum(-1))
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=1)


def concat_by_einsum(query, key, W, v):
    width = query.shape[-1]
    queries = torch.einsum("btd,ad->bta", query, W[:, :width])
    keys = torch.einsum("bsd,ad->bsa", key, W[:, width:])
    hidden = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
    return torch.einsum("btsa,a->bts", hidden, v)


def concat_by_blocks(query, key, W, v):
    W_query, W_key = torch.tensor_split(W, [query.shape[-1]], dim=1)
    keys = (key @ W_key.T)[:, None]
    blocks = [
        torch.tanh((block @ W_query.T)[:, :, None] + keys) @ v
        for block in query.split(2, dim=1)
    ]
    return torch.cat(blocks, dim=1)


def concat_by_sigmoid(query, key, W, v):
    return (2 * torch.sigmoid(2 * joined(query, key) @ W.T) - 1) @ v


def concat_by_zeros(query, key, W, v):
    """Put zeros where the other one stands, and add."""
    queries = F.pad(query, (0, key.shape[-1])) @ W.T
    keys = F.pad(key, (query.shape[-1], 0)) @ W.T
    return torch.tanh(queries[:, :, None] + keys[:, None]) @ v


def window_by_loops(centre, places, reach):
    return torch.tensor(
        [
            [[abs(s - c) <= reach for s in range(places)] for c in row]
            for row in centre.tolist()
        ]
    )


def window_by_slices(centre, places, reach):
    seen = torch.zeros(*centre.shape, places, dtype=torch.bool)
    for b, row in enumerate(centre.tolist()):
        for t, c in enumerate(row):
            begin = max(0, math.ceil(c - reach))
            end = max(0, math.floor(c + reach) + 1)
            seen[b, t, begin:end] = True
    return seen


def window_by_edges(centre, places, reach):
    s = torch.arange(places, dtype=centre.dtype)
    low, high = (centre - reach).unsqueeze(-1), (centre + reach).unsqueeze(-1)
    return torch.logical_and(s >= low, s <= high)


def window_by_numpy(centre, places, reach):
    away = np.arange(places) - centre.numpy(force=True)[..., None]
    return torch.from_numpy(np.abs(away) <= reach)


def window_by_squares(centre, places, reach):
    s = torch.arange(places).view(1, 1, -1).double()
    return (s - centre.double()[:, :, None]).square() <= reach**2


def window_not_outside(centre, places, reach):
    away = centre[:, :, None] - torch.arange(places)[None, None]
    return ~((away > reach) | (away < -reach))


def window_by_filling(centre, places, reach):
    away = torch.linspace(0, places - 1, places).round() - centre[..., None]
    seen = torch.zeros_like(away)
    seen[away.abs() <= reach] = 1
    return seen.bool()


ANSWERS = {
    "check_general_scores": (
        ("loops", general_by_loops),
        ("einsum", lambda q, k, W: torch.einsum("btd,de,bse->bts", q, W, k)),
        ("the query first", lambda q, k, W: q @ W @ k.transpose(-1, -2)),
        ("double inside", in_double(checks.check_general_scores.solution)),
        ("bilinear on pairs", general_by_pairs),
        ("singular values", general_by_svd),
        ("turned round", general_turned),
        ("a module", General()),
        ("sentence by sentence", general_per_sentence),
    ),
    "check_concat_scores": (
        ("pairs as they stand in the paper", concat_by_pairs),
        ("loops", concat_by_loops),
        ("einsum", concat_by_einsum),
        ("double inside", in_double(checks.check_concat_scores.solution)),
        ("in blocks of queries", concat_by_blocks),
        ("tanh from a sigmoid", concat_by_sigmoid),
        ("zeros beside", concat_by_zeros),
    ),
    "check_local_window": (
        ("loops", window_by_loops),
        ("slices with ceil and floor", window_by_slices),
        ("two edges", window_by_edges),
        ("numpy", window_by_numpy),
        ("squares", window_by_squares),
        ("not outside", window_not_outside),
        ("filled", window_by_filling),
    ),
}
