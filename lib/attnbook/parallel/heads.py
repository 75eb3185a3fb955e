"""Heads over devices: tensor parallelism, with one all-reduce each way.

Each rank holds the rows of W_query, W_key and W_value that make its heads, and
the columns of W_output that read them. Its output is a summand of the whole
output: one all-reduce in the forward pass adds the summands, and one in the
backward pass adds the gradients on the input. With fewer key heads than ranks,
several ranks hold copies of one key head.

Source: Shoeybi et al. (2019), section 3, https://arxiv.org/abs/1909.08053;
    copies of key heads: Pope et al. (2022), section 3.3,
    https://arxiv.org/abs/2211.05102 (departure: there the keys are then divided
    over the batch)
Axes: B batch, T positions, C model width, H heads, G groups (key-value heads),
    D width of a head
"""

from collections.abc import Sequence
from typing import NamedTuple

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
    sum_over_ranks,
)


class HeadShare(NamedTuple):
    """The heads that one rank computes, and the key heads that they need."""

    queries: range
    keys: range


def divide_heads(heads: int, groups: int, ranks: int) -> list[HeadShare]:
    """Return each rank's heads; key heads are copied if there are fewer than ranks.

    Ranks would differ unless numbers divide: this raises ValueError.
    """
    if ranks > heads:
        raise ValueError(
            f"{ranks} ranks cannot divide {heads} heads: a head is the smallest part"
        )
    if heads % ranks or heads % groups or (groups % ranks and ranks % groups):
        raise ValueError(
            f"{heads} heads and {groups} key heads do not divide over {ranks} ranks"
        )
    count, shared = heads // ranks, max(groups // ranks, 1)
    firsts = [rank * groups // ranks for rank in range(ranks)]
    return [
        HeadShare(range(rank * count, (rank + 1) * count), range(first, first + shared))
        for rank, first in enumerate(firsts)
    ]


class ColumnParallelLinear(nn.Module):
    """A linear layer of which this rank computes some outputs.

    These are columns of W in x W, and rows of a PyTorch layer's weights. Their
    gradient is summed over the ranks that have copies of them.
    """

    def __init__(
        self, linear: nn.Linear, group: Group, rows: slice, copies: Sequence[int] = ()
    ):
        super().__init__()
        self.group, self.copies = group, copies
        self.weight, self.bias = (
            None if x is None else nn.Parameter(x.detach()[rows].clone())
            for x in (linear.weight, linear.bias)
        )

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T O"]:
        """Return this rank's outputs."""
        weights = self.weight, self.bias
        if len(self.copies) > 1:
            weights = (
                w if w is None else copy_to_ranks(w, self.group, self.copies)
                for w in weights
            )
        return F.linear(x, *weights)


class RowParallelLinear(nn.Module):
    """A linear layer of which this rank reads some inputs; outputs are summed.

    The bias is added once.
    """

    def __init__(self, linear: nn.Linear, group: Group, columns: slice):
        super().__init__()
        self.group, bias = group, linear.bias
        self.weight = nn.Parameter(linear.weight.detach()[:, columns].clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T O"]:
        """Return the whole output, of this rank's columns of the input."""
        output = sum_over_ranks(F.linear(x, self.weight), self.group)
        return output if self.bias is None else output + self.bias


class TensorParallelAttention(nn.Module):
    """Multi-head self-attention of which each rank computes some heads.

    It copies its share of `attention`, which is equal on every rank and has no
    dropout: rows of query, key and value, and columns of output. ValueError if the
    heads do not divide over the ranks.
    """

    def __init__(self, attention: MultiHeadAttention, group: Group):
        super().__init__()
        shares = divide_heads(attention.heads, attention.groups, group.size)
        self.group, self.heads = group, attention.heads
        self.share = shares[group.rank]
        copies = [r for r, s in enumerate(shares) if s.keys == self.share.keys]
        width = attention.query.out_features // attention.heads
        rows, shared = (slice(x.start * width, x.stop * width) for x in self.share)
        self.query = ColumnParallelLinear(attention.query, group, rows)
        self.key = ColumnParallelLinear(attention.key, group, shared, copies)
        self.value = ColumnParallelLinear(attention.value, group, shared, copies)
        self.output = RowParallelLinear(attention.output, group, rows)

    def forward(
        self, x: Float[Tensor, "B T C"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "B T C"]:
        """Return the output of all heads, equal on every rank, as x and mask are.

        If x differs in shape between ranks, or is not where the weights are, every
        rank raises ValueError.
        """
        home, error = self.query.weight.device, None
        if x.device != home:
            error = f"rank {self.group.rank} has x on {x.device}, weights on {home}"
        require_alike(self.group, error, shape=tuple(x.shape))
        queries, keys = self.share
        if mask is not None and mask.ndim > 2 and mask.shape[-3] == self.heads:
            mask = mask[..., queries.start : queries.stop, :, :]
        x = copy_to_ranks(x, self.group)
        output = grouped_query(
            split_heads(self.query(x), len(queries)),
            split_heads(self.key(x), len(keys)),
            split_heads(self.value(x), len(keys)),
            mask,
        )
        return self.output(merge_heads(output))
