"""Grouped-query attention: groups of query heads share one key-value head.

With one group this is multi-query attention; with as many groups as heads it is
multi-head attention.

Source: Ainslie et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245;
    one group: Shazeer (2019), section 3, https://arxiv.org/abs/1911.02150
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values, C model width
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.multi_head import merge_heads, split_heads


def grouped_query(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return attention in which H / G consecutive heads share key and value.

    Keys and values are not repeated in memory: the queries of all heads of a
    group are concatenated along the query axis.

    Args:
        query: the queries of each head.
        key: the keys of each group.
        value: the values of each group.
        mask: True where a query can attend; broadcasts to (B, H, T, S).

    Raises:
        ValueError: if the heads do not divide into the groups, query and key
            differ in width, or there is not one value for each key.
    """
    heads, groups, width = query.shape[1], key.shape[1], query.shape[-1]
    if groups < 1 or heads % groups:
        raise ValueError(f"{heads} heads do not divide into {groups} groups")
    if width != key.shape[-1]:
        raise ValueError(
            f"queries are {width} wide but keys are {key.shape[-1]}: "
            "a dot product needs equal widths"
        )
    if key.shape[1:3] != value.shape[1:3]:
        raise ValueError(
            f"keys have {groups} groups of {key.shape[2]} but values "
            f"{value.shape[1]} of {value.shape[2]}: each key needs its value"
        )
    grouped = (query * width**-0.5).unflatten(1, (groups, -1)).flatten(2, 3)
    scores = (grouped @ key.transpose(-2, -1)).reshape(*query.shape[:3], -1)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        weights = masked_softmax(scores, mask)
    output = weights.reshape(*grouped.shape[:3], -1) @ value
    return output.reshape(*query.shape[:3], -1)


class GroupedQueryAttention(nn.Module):
    """Multi-head attention with G key-value heads for its H heads.

    Args:
        width: C, of the queries' input and of the output.
        heads: H; each is C / H wide.
        groups: G; keys and values have G · C / H columns.
        bias: whether the four projections have one.

    Raises:
        ValueError: if C does not divide into the heads, or they into groups.
    """

    def __init__(self, width: int, heads: int, groups: int, bias: bool = True):
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(
                f"{width} columns do not divide into {heads} heads"
            )
        if groups < 1 or heads % groups:
            raise ValueError(
                f"{heads} heads do not divide into {groups} groups"
            )
        self.heads, self.groups = heads, groups
        shared = width // heads * groups
        self.query = nn.Linear(width, width, bias)
        self.key = nn.Linear(width, shared, bias)
        self.value = nn.Linear(width, shared, bias)
        self.output = nn.Linear(width, width, bias)

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Return the output; self-attention unless memory is given."""
        memory = query if memory is None else memory
        output = grouped_query(
            split_heads(self.query(query), self.heads),
            split_heads(self.key(memory), self.groups),
            split_heads(self.value(memory), self.groups),
            mask,
        )
        return self.output(merge_heads(output))
