"""Right answers to the exercises of chapters/04_scaled_dot_product."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import scaled_dot_product as checks
from right_answers import in_double


def weights_by_loops(query, key):
    lead, scale = query.shape[:-2], query.shape[-1] ** -0.5
    rows = []
    for t in range(query.shape[-2]):
        scores = [
            (query[..., t, :] * scale * key[..., s, :]).sum(-1)
            for s in range(key.shape[-2])
        ]
        rows.append(torch.stack(scores, -1).softmax(-1))
    found = torch.stack(rows, -2)
    assert found.shape[:-2] == lead
    return found


def weights_by_einsum(query, key):
    query = query / math.sqrt(query.shape[-1])
    scores = torch.einsum("...td,...sd->...ts", query, key)
    return torch.softmax(scores, dim=-1)


def weights_by_hand(query, key):
    scores = query / query.shape[-1] ** 0.5 @ key.transpose(-1, -2)
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


def weights_by_fourth_roots(query, key):
    root = query.shape[-1] ** -0.25
    return F.softmax((query * root) @ (key * root).mT, dim=-1)


def weights_by_logarithms(query, key):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def weights_by_columns(query, key):
    return (key * key.shape[-1] ** -0.5 @ query.mT).softmax(-2).mT


class Attention(nn.Module):
    """Module style, with the softmax as a layer."""

    def __init__(self):
        super().__init__()
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, query, key, value, mask=None):
        scores = query / math.sqrt(query.size(-1)) @ key.transpose(-2, -1)
        if mask is None:
            return self.softmax(scores) @ value
        weights = self.softmax(scores.masked_fill(~mask, -torch.inf))
        return weights.masked_fill(~mask, 0.0) @ value


def attend_covering_nan(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    return scores.softmax(-1).nan_to_num() @ value


def attend_by_lowest(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is None:
        return scores.softmax(-1) @ value
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1) * mask) @ value


def attend_by_hand(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    seen = torch.ones_like(scores, dtype=torch.bool)
    seen = seen if mask is None else seen & mask
    top = scores.masked_fill(~seen, -torch.inf).amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    e = (scores - top).masked_fill(~seen, -torch.inf).exp()
    total = e.sum(-1, keepdim=True)
    return e @ value / total.masked_fill(total == 0, 1.0)


def attend_by_rows(query, key, value, mask):
    if mask is None:
        mask = torch.ones(1, dtype=torch.bool)
    mask = mask.expand(*query.shape[:-1], key.shape[-2])
    rows = []
    for t in range(query.shape[-2]):
        seen = mask[..., t, :]
        scores = (query[..., t : t + 1, :] @ key.mT)[..., 0, :]
        scores = scores / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1).masked_fill(~seen, 0.0)
        rows.append((weights[..., None] * value).sum(-2))
    return torch.stack(rows, -2)


def gradient_by_outputs(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    w = (query @ key.mT * scale).softmax(-1)
    output = w @ value
    average = (upstream * output).sum(-1, keepdim=True)
    ds = w * (upstream @ value.mT - average)
    return ds @ key * scale, ds.mT @ query * scale, w.mT @ upstream


def gradient_by_einsum(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    scores = torch.einsum("...td,...sd->...ts", query, key) * scale
    w = scores.softmax(-1)
    dvalue = torch.einsum("...ts,...te->...se", w, upstream)
    dw = torch.einsum("...te,...se->...ts", upstream, value)
    ds = w * dw - w * torch.einsum("...ts,...ts->...t", w, dw)[..., None]
    dquery = torch.einsum("...ts,...sd->...td", ds, key) * scale
    return dquery, torch.einsum("...ts,...td->...sd", ds, query) * scale, dvalue


def gradient_by_jacobian(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    w = (query @ key.mT * scale).softmax(-1)
    jacobian = torch.diag_embed(w) - w[..., :, None] * w[..., None, :]
    dw = upstream @ value.mT
    ds = (jacobian @ dw[..., None])[..., 0] * scale
    return [ds @ key, ds.mT @ query, w.mT @ upstream]


def gradient_by_query(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    dquery, dkey, dvalue = [], torch.zeros_like(key), torch.zeros_like(value)
    for t in range(query.shape[-2]):
        q, g = query[..., t, None, :], upstream[..., t, None, :]
        w = (q @ key.mT * scale).softmax(-1)
        dw = g @ value.mT
        ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * scale
        dquery.append(ds @ key)
        dkey, dvalue = dkey + ds.mT @ q, dvalue + w.mT @ g
    return torch.cat(dquery, -2), dkey, dvalue


def gradient_in_numpy(query, key, value, upstream):
    q, k, v, g = (
        x.numpy().astype(float) for x in (query, key, value, upstream)
    )
    scale = q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(-1, -2) * scale
    w = np.exp(scores - scores.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    dw = g @ v.swapaxes(-1, -2)
    ds = w * (dw - (w * dw).sum(-1, keepdims=True)) * scale
    found = ds @ k, ds.swapaxes(-1, -2) @ q, w.swapaxes(-1, -2) @ g
    return tuple(torch.from_numpy(x).to(query.dtype) for x in found)


def gradient_of_centred_values(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    w = (query * scale @ key.mT).softmax(-1)
    centred = value[..., None, :, :] - (w @ value)[..., :, None, :]
    ds = w * (centred * upstream[..., :, None, :]).sum(-1) * scale
    return ds @ key, ds.mT @ query, w.mT @ upstream


ANSWERS = {
    "check_weights": (
        ("loops", weights_by_loops),
        ("einsum", weights_by_einsum),
        ("softmax by hand", weights_by_hand),
        ("two fourth roots", weights_by_fourth_roots),
        ("double inside", in_double(checks.check_weights.solution)),
        ("logsumexp", weights_by_logarithms),
        ("columns, turned at the end", weights_by_columns),
    ),
    "check_attend": (
        ("a module", Attention()),
        ("nan_to_num", attend_covering_nan),
        ("the lowest number, then the mask", attend_by_lowest),
        ("softmax by hand", attend_by_hand),
        ("double inside", in_double(checks.check_attend.solution)),
        ("row by row", attend_by_rows),
    ),
    "check_gradient": (
        ("g · o", gradient_by_outputs),
        ("einsum", gradient_by_einsum),
        ("the whole Jacobian, and a list", gradient_by_jacobian),
        ("query by query", gradient_by_query),
        ("numpy", gradient_in_numpy),
        ("values less their average", gradient_of_centred_values),
    ),
}
