"""Linformer: keys and values projected along the length, to a fixed number.

A learned matrix mixes the S keys into P, another one the S values, and the
queries attend to these P. Time and memory grow with T · P instead of T · S.
The matrices have one column for each position, so no input can be longer than
the one that they were made for; and each of the P contains keys from all
positions, so no mask can hide the later ones from a query.

Source: Wang et al. (2020), section 4, equation 7,
    https://arxiv.org/abs/2006.04768; all heads share the two matrices
    ("headwise sharing"). Departure: shorter inputs use the first columns.
Axes: B batch, H heads, T queries, S keys, P projected keys, L the length that
    the matrices are made for, D width of query and key, E of values, C model
    width, M memory width
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.scaled_dot_product import attend, require_values


def attend_linformer(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    key_matrix: Float[Tensor, "P L"],
    value_matrix: Float[Tensor, "P L"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return attention to P mixtures of the keys and values.

    Args:
        query: the queries.
        key: the keys, at most L.
        value: the values, one for each key.
        key_matrix: mixes the keys.
        value_matrix: mixes the values.
        mask: True at keys that are not padding, (B, 1, 1, S).

    Raises:
        ValueError: if there are more keys than L, or the mask differs between
            queries.
    """
    require_values(key, value)
    key, value = mix_positions(key, value, key_matrix, value_matrix, mask)
    return attend(query, key, value)


def mix_positions(
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    key_matrix: Float[Tensor, "P L"],
    value_matrix: Float[Tensor, "P L"],
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "B H P D"], Float[Tensor, "B H P E"]]:
    """Return the P keys and values; arguments are those of `attend_linformer`.

    Padding is replaced by zeros before it is mixed.
    """
    S, length = key.shape[-2], key_matrix.shape[-1]
    if length < S:
        raise ValueError(
            f"this Linformer was made for at most {length} keys and cannot "
            f"take {S}: its matrices have one column for each position"
        )
    if mask is not None:
        if mask.ndim > 1 and mask.shape[-2] != 1:
            raise ValueError(
                f"the {mask.shape[-2]} rows of the mask differ between "
                f"queries, as in a causal mask, but the {S} keys are mixed "
                f"into {key_matrix.shape[-2]} before a query attends to them"
            )
        hidden = ~(mask.transpose(-2, -1) if mask.ndim > 1 else mask[:, None])
        key, value = (x.masked_fill(hidden, 0.0) for x in (key, value))
    return key_matrix[:, :S] @ key, value_matrix[:, :S] @ value


class LinformerAttention(MultiHeadAttention):
    """Multi-head attention to P mixtures of at most `length` positions.

    Args:
        width: C, of the queries' input and of the output.
        heads: H; each is C / H wide.
        length: L, the number of positions that an input can have.
        projected: P, the number of keys that queries attend to.
        memory: M, the width of the keys' and values' input; C unless given.
        dropout: dropout probability of the attention weights in training.
        bias: whether the four projections of the width have one.

    Raises:
        ValueError: if P is not between 1 and L, or C does not divide into the
            heads.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        length: int,
        projected: int,
        memory: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__(width, heads, memory, dropout, bias)
        if not 1 <= projected <= length:
            raise ValueError(
                f"{length} positions can be projected to between 1 and "
                f"{length} keys, not to {projected}"
            )
        self.key_matrix = nn.Parameter(torch.empty(projected, length))
        self.value_matrix = nn.Parameter(torch.empty(projected, length))
        for matrix in (self.key_matrix, self.value_matrix):
            nn.init.normal_(matrix, std=length**-0.5)

    def attend(
        self,
        query: Float[Tensor, "B H T D"],
        key: Float[Tensor, "B H S D"],
        value: Float[Tensor, "B H S E"],
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T P"]]:
        """Return output and weights; a bias of positions is refused."""
        if bias is not None:
            raise ValueError(
                f"a bias of shape {tuple(bias.shape)} belongs to single keys, "
                f"but here {len(self.key_matrix)} mixtures of keys have scores"
            )
        mixed = mix_positions(key, value, self.key_matrix, self.value_matrix, mask)
        return super().attend(query, *mixed)
