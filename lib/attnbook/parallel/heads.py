"""Heads over devices: tensor parallelism, with one all-reduce each way.

Each rank holds the rows of W_query, W_key and W_value that make its heads, and
the columns of W_output that read them. Its output is a summand of the whole
output: one all-reduce in the forward pass adds the summands, and one in the
backward pass adds the gradients on the input.

With fewer key heads than ranks, several ranks hold a copy of one key head; the
gradient on its weights is the sum of what these ranks compute.

Source: Shoeybi et al. (2019), section 3, https://arxiv.org/abs/1909.08053;
    copies of key heads: Pope et al. (2022), section 3.3,
    https://arxiv.org/abs/2211.05102 (departure: there the keys are then divided
    over the batch)
Axes: B batch, T positions, C model width, H heads, G groups (key-value heads),
    D width of a head
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnbook.attention.multi_head import (
    MultiHeadAttention,
    grouped_query,
    merge_heads,
    split_heads,
)
from attnbook.parallel.groups import (
    Group,
    copy_to_ranks,
    require_alike,
    require_all,
    sum_over_ranks,
)


class HeadShare(NamedTuple):
    """The heads that one rank computes, and the key heads that they need."""

    queries: range
    keys: range


def divide_heads(heads: int, groups: int, ranks: int) -> list[HeadShare]:
    """Return each rank's heads; key heads are copied if there are fewer than ranks.

    Raises:
        ValueError: if there are more ranks than heads, or ranks would differ.
    """
    if groups < 1 or heads % groups:
        raise ValueError(f"{heads} heads do not divide into {groups} groups")
    if ranks > heads:
        raise ValueError(
            f"{ranks} ranks cannot divide {heads} heads: a head is the smallest part"
        )
    if heads % ranks:
        raise ValueError(f"{heads} heads do not divide over {ranks} ranks")
    if groups % ranks and ranks % groups:
        raise ValueError(
            f"{groups} key heads neither divide over {ranks} ranks nor can each be "
            "copied to as many of them"
        )
    count = heads // ranks
    shares = []
    for rank in range(ranks):
        first = rank * groups // ranks
        keys = range(first, first + max(groups // ranks, 1))
        shares.append(HeadShare(range(rank * count, (rank + 1) * count), keys))
    return shares


class SlicedLinear(nn.Module):
    """A linear layer with copies of some rows and columns of another's weights."""

    def __init__(
        self,
        linear: nn.Linear,
        rows: slice | None = None,
        columns: slice | None = None,
    ):
        super().__init__()
        kept = slice(None) if rows is None else rows
        weight, bias = linear.weight.detach()[kept], linear.bias
        if columns is not None:
            weight = weight[:, columns]
        self.weight = nn.Parameter(weight.clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach()[kept].clone())


def find_slice(size: int, group: Group) -> slice:
    """Return this rank's part of an axis, or raise ValueError if parts differ."""
    share = divide_heads(size, size, group.size)[group.rank].queries
    return slice(share.start, share.stop)


class ColumnParallelLinear(SlicedLinear):
    """A linear layer of which this rank computes an equal share of the outputs.

    These are columns of W in x W, and rows of a PyTorch layer's weights.
    """

    def __init__(self, linear: nn.Linear, group: Group):
        super().__init__(linear, find_slice(linear.out_features, group))
        self.group = group

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T O"]:
        """Return this rank's columns of the output; the gradient on x is summed."""
        return F.linear(copy_to_ranks(x, self.group), self.weight, self.bias)


class RowParallelLinear(SlicedLinear):
    """A linear layer of which this rank reads some inputs; outputs are summed.

    These are an equal share unless `columns` are given. The bias is added once.
    """

    def __init__(self, linear: nn.Linear, group: Group, columns: slice | None = None):
        if columns is None:
            columns = find_slice(linear.in_features, group)
        super().__init__(linear, columns=columns)
        self.group = group

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T O"]:
        """Return the whole output, of this rank's columns of the input."""
        output = sum_over_ranks(F.linear(x, self.weight), self.group)
        return output if self.bias is None else output + self.bias


class _ShareCopies(torch.autograd.Function):
    """The identity; in the backward pass, the sum over the ranks with copies."""

    @staticmethod
    def forward(ctx, weight: Tensor, group: Group, copies: list[int]) -> Tensor:
        ctx.group, ctx.copies = group, copies
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple[Tensor, None, None]:
        ranks = range(ctx.group.size)
        parts = [upstream if r in ctx.copies else upstream[:0] for r in ranks]
        arrived = ctx.group.all_to_all(parts)
        return torch.stack([arrived[r] for r in ctx.copies]).sum(dim=0), None, None


class TensorParallelAttention(nn.Module):
    """Multi-head self-attention of which each rank computes some heads.

    It copies its share of `attention`, which is equal on every rank and has no
    dropout: rows of query, key and value, and columns of output.

    Raises:
        ValueError: if the heads do not divide over the ranks.
    """

    def __init__(self, attention: MultiHeadAttention, group: Group):
        super().__init__()
        shares = divide_heads(attention.heads, attention.groups, group.size)
        self.group, self.heads = group, attention.heads
        self.share = shares[group.rank]
        self.copies = [r for r, s in enumerate(shares) if s.keys == self.share.keys]
        width = attention.query.out_features // attention.heads
        rows, shared = (slice(x.start * width, x.stop * width) for x in self.share)
        self.query = SlicedLinear(attention.query, rows)
        self.key = SlicedLinear(attention.key, shared)
        self.value = SlicedLinear(attention.value, shared)
        self.output = RowParallelLinear(attention.output, group, rows)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Return the output of all heads, equal on every rank, as x and mask are.

        Raises:
            ValueError: on every rank, if x differs in shape between the ranks.
        """
        home = self.query.weight.device
        wrong = (
            f"x is on {x.device} but the weights of rank {self.group.rank} on {home}"
        )
        require_all(self.group, wrong if x.device != home else None)
        require_alike(self.group, shape=tuple(x.shape))
        queries, keys = self.share
        if mask is not None and mask.ndim > 2 and mask.shape[-3] == self.heads:
            mask = mask[..., queries.start : queries.stop, :, :]
        x = copy_to_ranks(x, self.group)
        query = F.linear(x, self.query.weight, self.query.bias)
        key, value = (
            F.linear(x, *map(self._share_copies, (layer.weight, layer.bias)))
            for layer in (self.key, self.value)
        )
        output = grouped_query(
            split_heads(query, len(queries)),
            split_heads(key, len(keys)),
            split_heads(value, len(keys)),
            mask,
        )
        return self.output(merge_heads(output))

    def _share_copies(self, weight: Tensor | None) -> Tensor | None:
        """Return weights whose gradient is the sum over the ranks with copies."""
        if weight is None or len(self.copies) == 1:
            return weight
        return _ShareCopies.apply(weight, self.group, self.copies)
