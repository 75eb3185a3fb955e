"""Grouped-query attention: groups of query heads share one key-value head.

With one group this is multi-query attention; with as many groups as heads it is
multi-head attention.

Source: Ainslie et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245;
    one group: Shazeer (2019), section 3, https://arxiv.org/abs/1911.02150
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values, C model width
"""

from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.masked_softmax import softmax_over_keys
from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.scaled_dot_product import scaled_scores


def fold_groups(x: Float[Tensor, "B H T _"], groups: int) -> Tensor:
    """Return (B, G, H / G · T, _): the rows of a group's heads concatenated."""
    return x.unflatten(1, (groups, -1)).flatten(2, 3)


def grouped_scores(
    query: Float[Tensor, "B H T D"], key: Float[Tensor, "B G S D"]
) -> Float[Tensor, "B H T S"]:
    """Return the scores of each head's queries and its group's keys."""
    scores = scaled_scores(fold_groups(query, key.shape[1]), key)
    return scores.reshape(*query.shape[:3], -1)


def grouped_average(
    weights: Float[Tensor, "B H T S"], value: Float[Tensor, "B G S E"]
) -> Float[Tensor, "B H T E"]:
    """Return each head's averages of its group's values."""
    output = fold_groups(weights, value.shape[1]) @ value
    return output.reshape(*weights.shape[:3], -1)


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
    heads, groups = query.shape[1], key.shape[1]
    if groups < 1 or heads % groups:
        raise ValueError(f"{heads} heads do not divide into {groups} groups")
    if key.shape[1:3] != value.shape[1:3]:
        raise ValueError(
            f"keys have {groups} groups of {key.shape[2]} but values "
            f"{value.shape[1]} of {value.shape[2]}: each key needs its value"
        )
    weights = softmax_over_keys(grouped_scores(query, key), mask)
    return grouped_average(weights, value)


class GroupedQueryAttention(MultiHeadAttention):
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
        super().__init__(width, heads, bias=bias, groups=groups)

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B G S D"]
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores of each head's queries and its group's keys."""
        return grouped_scores(query, key)

    def combine(
        self, weights: Float[Tensor, "B H T S"], value: Float[Tensor, "B G S E"]
    ) -> Float[Tensor, "B H T E"]:
        """Return each head's averages of its group's values."""
        return grouped_average(weights, value)
