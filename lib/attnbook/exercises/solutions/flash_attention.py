"""Attention in tiles, in its shortest form: forwards, backwards, and merged.

Source: Dao et al. (2022), sections 3.1 and appendix B,
    https://arxiv.org/abs/2205.14135; Milakov and Gimelshein (2018),
    algorithm 3, https://arxiv.org/abs/1805.02867. One logsumexp is kept for
    each query, as in Dao (2023), section 3.1, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width, n scores of a
    chunk; leading axes (B batch, H heads, ...) stay
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor


def online_softmax(
    chunks: Iterable[Float[Tensor, "T n"]],
) -> tuple[Float[Tensor, " T"], Float[Tensor, " T"]]:
    """Return each row's maximum and its total of exp(score - maximum)."""
    maximum, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        higher = torch.maximum(maximum, chunk.amax(dim=-1))
        # Where nothing was seen yet, -inf - -inf would be NaN.
        shift = higher.masked_fill(higher == -torch.inf, 0.0)
        total = total * (maximum - shift).exp()
        total = total + (chunk - shift[:, None]).exp().sum(dim=-1)
        maximum = higher
    return maximum, total


def tiled(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    block: int,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention and each row's logsumexp, from tiles of the scores."""
    outputs, sums = [], []
    for q in (query * query.shape[-1] ** -0.5).split(block, dim=-2):
        maximum = q.new_full(q.shape[:-1], -torch.inf)
        total = torch.zeros_like(maximum)
        output = q.new_zeros(*q.shape[:-1], value.shape[-1])
        for k, v in zip(
            key.split(block, -2), value.split(block, -2), strict=True
        ):
            scores = q @ k.mT
            higher = torch.maximum(maximum, scores.amax(dim=-1))
            factor = (maximum - higher).exp()
            weights = (scores - higher[..., None]).exp()
            total = total * factor + weights.sum(dim=-1)
            output = output * factor[..., None] + weights @ v
            maximum = higher
        outputs.append(output / total[..., None])
        sums.append(maximum + total.log())
    return torch.cat(outputs, dim=-2), torch.cat(sums, dim=-1)


def merge(
    output_a: Float[Tensor, "*B T E"],
    lse_a: Float[Tensor, "*B T"],
    output_b: Float[Tensor, "*B T E"],
    lse_b: Float[Tensor, "*B T"],
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention to the keys of both parts, from attention to each."""
    lse = torch.logaddexp(lse_a, lse_b)
    # Where both are empty, -inf - -inf would be NaN.
    shift = lse.masked_fill(lse == -torch.inf, 0.0)
    share_a, share_b = ((x - shift).exp()[..., None] for x in (lse_a, lse_b))
    return share_a * output_a + share_b * output_b, lse


def tiled_backward(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    output: Float[Tensor, "*B T E"],
    lse: Float[Tensor, "*B T"],
    upstream: Float[Tensor, "*B T E"],
    block: int,
) -> tuple[
    Float[Tensor, "*B T D"], Float[Tensor, "*B S D"], Float[Tensor, "*B S E"]
]:
    """Return a loss's gradients on query, key and value, tile by tile."""
    scale = query.shape[-1] ** -0.5
    average = (upstream * output).sum(dim=-1, keepdim=True)
    dquery, dkey, dvalue = (torch.zeros_like(x) for x in (query, key, value))
    by_query = query, upstream, lse[..., None], average, dquery
    rows = [x.split(block, dim=-2) for x in by_query]
    columns = [x.split(block, dim=-2) for x in (key, value, dkey, dvalue)]
    for k, v, dk, dv in zip(*columns, strict=True):
        for q, up, z, mean, dq in zip(*rows, strict=True):
            weights = (q * scale @ k.mT - z).exp()
            dscores = weights * (up @ v.mT - mean) * scale
            dq += dscores @ k  # views: what is added here arrives in dquery
            dk += dscores.mT @ q
            dv += weights.mT @ up
    return dquery, dkey, dvalue
