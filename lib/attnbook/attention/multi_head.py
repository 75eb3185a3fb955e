"""Multi-head attention, and grouped heads.

In grouped-query attention, groups of query heads share one key-value head. With
one group this is multi-query attention; with as many groups as heads it is
multi-head attention. `MultiHeadMemory` replaces chapter 3's `GlobalAttention`
in a `LuongDecoder`. `GatedCrossAttention` starts with a gate of 0, so that a
trained text model can receive it and still computes what it computed before.

Source: Vaswani et al. (2017), sections 3.2.2 and 3.2.3,
    https://arxiv.org/abs/1706.03762 (departures: an optional bias in each
    projection; each head's values may be wider than its keys); groups: Ainslie
    et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245; one group:
    Shazeer (2019), section 3, https://arxiv.org/abs/1911.02150; the gate:
    Alayrac et al. (2022), Flamingo, section 2.2 and figure 4,
    https://arxiv.org/abs/2204.14198 (departures: without the gated feed-forward
    network that follows there, and with a LayerNorm of the text)
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, C model
    width, M memory width, O output width, D width of a head's queries and keys,
    E of its values; HD and HE are those of all heads side by side, KV keys and
    values side by side
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.masked_softmax import softmax_over_keys
from attnbook.attention.scaled_dot_product import attend, scaled_scores
from attnbook.attention.self_attention import cross_attention


def split_heads(x: Float[Tensor, "B T C"], heads: int) -> Tensor:
    """Return (B, H, T, D): head h gets the h-th block of C / H columns.

    Raises:
        ValueError: if C is not a multiple of the number of heads.
    """
    if heads < 1 or x.shape[-1] % heads:
        raise ValueError(f"{x.shape[-1]} columns do not divide into {heads} heads")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T D"]) -> Tensor:
    """Return (B, T, H · D): the heads' columns concatenated."""
    return x.transpose(1, 2).flatten(2)


def multi_head(
    query: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S M"],
    W_query: Float[Tensor, "HD C"],
    W_key: Float[Tensor, "HD M"],
    W_value: Float[Tensor, "HE M"],
    W_output: Float[Tensor, "O HE"],
    heads: int,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B T O"]:
    """Return multi-head attention of the queries to the memory.

    Args:
        query: the input of the queries; for self-attention, also the memory.
        W_query: all heads' rows one after the other; so W_key and W_value.
        W_output: of the heads' outputs side by side.
        mask: True where a query can attend; broadcasts to (B, H, T, S).

    Raises:
        ValueError: if a projection does not divide into the heads.
    """
    Q, K, V = (
        split_heads(x @ W.T, heads)
        for x, W in ((query, W_query), (memory, W_key), (memory, W_value))
    )
    return merge_heads(attend(Q, K, V, mask)) @ W_output.T


def multi_head_loop(
    query: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S M"],
    W_query: Float[Tensor, "HD C"],
    W_key: Float[Tensor, "HD M"],
    W_value: Float[Tensor, "HE M"],
    W_output: Float[Tensor, "O HE"],
    heads: int,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B T O"]:
    """Return the same as `multi_head`, computed one head after the other.

    This is the paper's formula: each head has its own three matrices.
    """
    outputs = []
    parts = (W.chunk(heads) for W in (W_query, W_key, W_value))
    for h, (Q, K, V) in enumerate(zip(*parts, strict=True)):
        head_mask = None
        if mask is not None:
            # A mask shared by all heads has size 1 on the head axis, or no head
            # axis.
            head_mask = mask
            if mask.ndim >= 3:
                head_mask = mask[..., min(h, mask.shape[-3] - 1), :, :]
        outputs.append(attend(query @ Q.T, memory @ K.T, memory @ V.T, head_mask))
    return torch.cat(outputs, dim=-1) @ W_output.T


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


class MultiHeadAttention(nn.Module):
    """Multi-head attention with its four learned projections.

    Variants override one of three steps: `project` (how the heads' queries,
    keys and values are made), `scores`, or `combine` (how the weights average
    the values).

    Args:
        width: C, of the queries' input and of the output.
        heads: H; each is C / H wide.
        memory: M, the width of the keys' and values' input; C unless given.
        dropout: dropout probability of the attention weights in training.
        bias: whether the four projections have one.
        groups: G, the heads of keys and values; H unless given.

    Raises:
        ValueError: if C does not divide into the heads, or they into groups.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        memory: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        groups: int | None = None,
    ):
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"{width} columns do not divide into {heads} heads")
        groups = heads if groups is None else groups
        if groups < 1 or heads % groups:
            raise ValueError(f"{heads} heads do not divide into {groups} groups")
        memory = width if memory is None else memory
        shared = width // heads * groups
        self.heads, self.groups = heads, groups
        self.query = nn.Linear(width, width, bias)
        self.key = nn.Linear(memory, shared, bias)
        self.value = nn.Linear(memory, shared, bias)
        self.output = nn.Linear(width, width, bias)
        self.drop = nn.Dropout(dropout)

    def project(
        self, query: Float[Tensor, "B T C"], memory: Float[Tensor, "B S M"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads' queries (B, H, T, D), keys and values."""
        return (
            split_heads(self.query(query), self.heads),
            split_heads(self.key(memory), self.groups),
            split_heads(self.value(memory), self.groups),
        )

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B G S D"]
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores before bias, mask and softmax."""
        return grouped_scores(query, key)

    def combine(
        self, weights: Float[Tensor, "B H T S"], value: Float[Tensor, "B G S E"]
    ) -> Float[Tensor, "B H T E"]:
        """Return the averages of the values with these weights."""
        return grouped_average(weights, value)

    def attend(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B G S D"],
        value: Float[Tensor, "B G S E"],
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T S"]]:
        """Return output and weights of what `project` returns.

        Mask and bias as in `forward`.
        """
        weights = softmax_over_keys(self.scores(query, key), mask, bias)
        context = self.combine(self.drop(weights), value)
        return self.output(merge_heads(context)), weights

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S M"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
        bias: Float[Tensor, "..."] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the output (B, T, C), and weights (B, H, T, S) if requested.

        Args:
            query: the input of the queries.
            memory: the input of keys and values; for self-attention, omitted.
            mask: True where a query can attend; broadcasts to (B, H, T, S).
            need_weights: whether to return each head's weights, before dropout.
            bias: added to the scores; broadcasts to (B, H, T, S).
        """
        memory = query if memory is None else memory
        output, weights = self.attend(*self.project(query, memory), mask, bias)
        return (output, weights) if need_weights else output


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

    Keys and values have G · C / H columns. Arguments and errors are those of
    `MultiHeadAttention`.
    """

    def __init__(self, width: int, heads: int, groups: int, bias: bool = True):
        super().__init__(width, heads, bias=bias, groups=groups)


class MultiHeadMemory(nn.Module):
    """Multi-head attention to a memory whose padding is given by lengths.

    Args:
        query: width C of the queries, and of the context.
        memory: width M of the memory.
        heads: H.
    """

    def __init__(self, query: int, memory: int, heads: int):
        super().__init__()
        self.attention = MultiHeadAttention(query, heads, memory, bias=False)

    def key(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S KV"]:
        """Return projected keys and values, once for each sentence."""
        keys, values = self.attention.key(memory), self.attention.value(memory)
        return torch.cat([keys, values], dim=-1)

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        keys: Float[Tensor, "B S _"],
        value: Float[Tensor, "B S M"],
        lengths: Int[Tensor, " B"],
        step: int = 0,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T S"]]:
        """Return the context of each query, and the mean of the heads' weights.

        The values are those that `key` projected from the memory. `value` (the
        memory itself) and `step` are used by other kinds of attention only.
        """
        attention = self.attention
        positions = torch.arange(keys.shape[1], device=keys.device)
        projected_keys, projected_values = keys.chunk(2, dim=-1)
        context, weights = attention.attend(
            split_heads(attention.query(query), attention.heads),
            split_heads(projected_keys, attention.heads),
            split_heads(projected_values, attention.heads),
            positions < lengths[:, None, None, None],
        )
        return context, weights.mean(dim=1)


def gated_cross_attention(
    text: Float[Tensor, "B T C"],
    image: Float[Tensor, "B S M"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D M"],
    W_value: Float[Tensor, "C M"],
    gate: Float[Tensor, ""],
) -> Float[Tensor, "B T C"]:
    """Return text + tanh(gate) · attention of the text to the image.

    At gate 0 the text is returned unchanged.

    Raises:
        ValueError: if a projection does not fit the width of what it projects,
            or values are not as wide as the text.
    """
    if W_value.shape[0] != text.shape[-1]:
        raise ValueError(
            f"values of width {W_value.shape[0]} cannot be added to text of "
            f"width {text.shape[-1]}"
        )
    attended = cross_attention(text, image, W_query, W_key, W_value)
    return text + gate.tanh() * attended


class GatedCrossAttention(nn.Module):
    """Multi-head cross-attention behind a gate, with a residual connection.

    `image` is M, which is C (`width`) unless given.
    """

    def __init__(self, width: int, heads: int, image: int | None = None):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, image)
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(
        self, text: Float[Tensor, "B T C"], image: Float[Tensor, "B S M"]
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T S"]]:
        """Return text + tanh(gate) · attention, and the attention weights."""
        attended, weights = self.attention(self.norm(text), image, need_weights=True)
        return text + self.gate.tanh() * attended, weights
