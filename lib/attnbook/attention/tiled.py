"""Tiled attention: one block of queries and one block of keys at a time.

The whole (T, S) matrix of scores is never in memory. In the forward pass, an
online softmax keeps each query's maximum, sum and output. The terms summed
under an old maximum m are exp(s - m); under a new maximum M they should have
been exp(s - M), which is the same times exp(m - M) for every score, so one
factor corrects the sum so far. In the backward pass, exp(score - logsumexp)
recomputes each tile's weights.

Source: online softmax: Milakov and Gimelshein (2018), section 3, algorithm 3,
    https://arxiv.org/abs/1805.02867; merging two parts: the same, section 3.1,
    and Dao et al. (2022), section 3.1; tiles: algorithms 1 and 4 there,
    https://arxiv.org/abs/2205.14135; one division at the end and the saved
    logsumexp: Dao (2023), section 3.1.1, the order of the loops: algorithm 1
    and section 3.2, https://arxiv.org/abs/2307.08691. Departure: a query that
    can attend to no key gets zeros.
Axes: T queries, S keys, D width of query and key, E value width, N scores in a
    chunk; leading axes (B batch, H heads, ...) broadcast
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import require_fit


def online_softmax(
    chunks: Iterable[Float[Tensor, "*B _"]],
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
    """Return each row's maximum, and its total of exp(score - maximum).

    A row that has only scores of -inf gets -inf and 0.

    Args:
        chunks: the scores, in chunks of any length from 1; each is read once.

    Raises:
        ValueError: if there is no chunk.
    """
    maximum = total = None
    for scores in chunks:
        if maximum is None or total is None:
            maximum = scores.new_full(scores.shape[:-1], -torch.inf)
            total = torch.zeros_like(maximum)
        highest = torch.maximum(maximum, scores.amax(dim=-1))
        exponentials = (scores - clamp_maximum(highest)[..., None]).exp()
        total = total * compute_rescaling(maximum, highest) + exponentials.sum(dim=-1)
        maximum = highest
    if maximum is None or total is None:
        raise ValueError("no scores: at least 1 chunk is needed, not 0")
    return maximum, total


def merge(
    output_a: Float[Tensor, "*B E"],
    lse_a: Float[Tensor, "*B"],
    output_b: Float[Tensor, "*B E"],
    lse_b: Float[Tensor, "*B"],
) -> tuple[Float[Tensor, "*B E"], Float[Tensor, "*B"]]:
    """Return attention to the keys of two parts from attention to each.

    A part with logsumexp -inf has no key to attend to; two such parts give
    zeros and -inf.

    Args:
        output_a: average of the values of the first part; output_b of the second.
        lse_a: logarithm of the sum of exp(score) over it; lse_b likewise.
    """
    highest = clamp_maximum(torch.maximum(lse_a, lse_b).detach())
    share_a, share_b = (lse_a - highest).exp(), (lse_b - highest).exp()
    total = share_a + share_b
    empty = total == 0
    divisor = total.masked_fill(empty, 1.0)
    output = (
        output_a * (share_a / divisor)[..., None]
        + output_b * (share_b / divisor)[..., None]
    )
    lse = (highest + divisor.log()).masked_fill(empty, -torch.inf)
    return output.to(output_a.dtype), lse


def clamp_maximum(maximum: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return the maximum, but 0 where it is -inf: -inf - -inf is NaN."""
    return maximum.masked_fill(maximum == -torch.inf, 0.0)


def compute_rescaling(
    old: Float[Tensor, "*B"], new: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Return the factor, at most 1, of the sums under the old maximum."""
    return (old - clamp_maximum(new)).exp()


BLOCK_SIZE = 256


class TileScores:
    """Computes the scores of a tile: scaled dot products with S = `keys` keys."""

    def __init__(self, keys: int, scale: float):
        self.keys, self.scale = keys, scale

    def key_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 can attend to."""
        return 0, self.keys

    def compute(
        self, query: Tensor, key: Tensor, row: int, column: int
    ) -> tuple[Tensor, Tensor | float]:
        """Return a tile's scores, and their derivatives by the dot products.

        Its first query has the position `row`, its first key `column`.
        """
        return (query * self.scale) @ key.transpose(-2, -1), self.scale


def attend_tiled(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    block: int = BLOCK_SIZE,
    scores: TileScores | None = None,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention, and the logarithm of each query's sum of exp(score).

    Sums of half-precision inputs are taken in single precision, and so are the
    logarithms.

    Args:
        block: queries, and keys, of a tile.
        scores: computes the scores; scaled dot products unless given.

    Raises:
        ValueError: if `block` is below 1, or the shapes do not fit each other.
    """
    output, maximum, total = accumulate_tiles(query, key, value, block, scores)
    return output, maximum + total.log()


def accumulate_tiles(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    block: int = BLOCK_SIZE,
    scores: TileScores | None = None,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"], Float[Tensor, "*B T"]]:
    """Return attention, each query's maximum, and its sum of exponentials.

    Together they are more precise than one logarithm: a small number added to
    200 loses its last digits. Arguments and errors are those of `attend_tiled`.
    """
    scores = check_shapes(query, key, value, block, scores)
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    outputs, maxima, totals = [], [], []
    for row in range(0, query.shape[-2], block):
        rows = promote_to_float32(query[..., row : row + block, :])
        first, stop = scores.key_range(row, row + rows.shape[-2])
        output = rows.new_zeros(*lead, rows.shape[-2], value.shape[-1])
        total = output.new_zeros(output.shape[:-1])
        maximum = torch.full_like(total, -torch.inf)
        for column in range(first, stop, block):
            keys = slice(column, min(column + block, stop))
            tile, _ = scores.compute(
                rows, promote_to_float32(key[..., keys, :]), row, column
            )
            highest = torch.maximum(maximum, tile.amax(dim=-1))
            factor = compute_rescaling(maximum, highest)
            exponentials = (tile - clamp_maximum(highest)[..., None]).exp_()
            total = total * factor + exponentials.sum(dim=-1)
            output = output * factor[..., None]
            output += exponentials @ promote_to_float32(value[..., keys, :])
            maximum = highest
        # A query that can attend to no key has output 0, which is divided by 1.
        output /= total.masked_fill(total == 0, 1.0)[..., None]
        outputs.append(output.to(query.dtype))
        maxima.append(maximum)
        totals.append(total)
    return torch.cat(outputs, -2), torch.cat(maxima, -1), torch.cat(totals, -1)


def attend_tiled_gradient(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    output: Float[Tensor, "*B T E"],
    lse: Float[Tensor, "*B T"],
    upstream: Float[Tensor, "*B T E"],
    block: int = BLOCK_SIZE,
    scores: TileScores | None = None,
) -> tuple[
    Float[Tensor, "*#B T D"], Float[Tensor, "*#B S D"], Float[Tensor, "*#B S E"]
]:
    """Return a loss's gradients on query, key and value of `attend_tiled`.

    Args:
        output: the output of `attend_tiled`.
        lse: the logsumexp that it returned.
        upstream: the loss's gradient on the output.
        block, scores: as in `attend_tiled`.
    """
    scores = check_shapes(query, key, value, block, scores)
    # Σ weights · (upstream · value) over the keys is upstream · output: the
    # term that chapter 4 subtracts from every score's gradient needs no tile.
    average = (promote_to_float32(output) * promote_to_float32(upstream)).sum(
        dim=-1, keepdim=True
    )
    dquery, dkey, dvalue = (
        x.new_zeros(x.shape, dtype=average.dtype) for x in (query, key, value)
    )
    for row in range(0, query.shape[-2], block):
        rows = slice(row, row + block)
        queries = promote_to_float32(query[..., rows, :])
        up = promote_to_float32(upstream[..., rows, :])
        row_lse = clamp_maximum(lse[..., rows])[..., None]
        first, stop = scores.key_range(row, row + queries.shape[-2])
        for column in range(first, stop, block):
            keys = slice(column, min(column + block, stop))
            tile_keys = promote_to_float32(key[..., keys, :])
            tile_values = promote_to_float32(value[..., keys, :])
            tile, slope = scores.compute(queries, tile_keys, row, column)
            weights = (tile - row_lse).exp_()
            add_to_rows(dvalue, keys, weights.transpose(-2, -1) @ up)
            # In place: three tensors of a tile's size are not made.
            dtile = up @ tile_values.transpose(-2, -1)
            dtile.sub_(average[..., rows, :]).mul_(weights).mul_(slope)
            add_to_rows(dquery, rows, dtile @ tile_keys)
            add_to_rows(dkey, keys, dtile.transpose(-2, -1) @ queries)
    return dquery.to(query), dkey.to(key), dvalue.to(value)


def promote_to_float32(x: Tensor) -> Tensor:
    """Return the tensor in single precision, or in double if it is double."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def add_to_rows(whole: Tensor, rows: slice, part: Tensor) -> None:
    """Add to some rows in place, summing over axes that were broadcast."""
    selected = whole[..., rows, :]
    selected += part.sum_to_size(selected.shape)


def check_shapes(
    query: Tensor, key: Tensor, value: Tensor, block: int, scores: TileScores | None
) -> TileScores:
    """Return the scores to use, or raise ValueError if shapes do not fit."""
    if block < 1:
        raise ValueError(f"block must be at least 1, not {block}")
    require_fit(query, key, value)
    return scores or TileScores(key.shape[-2], key.shape[-1] ** -0.5)
