"""Multiplicative attention: Luong's dot, general, concat and location scores.

Every score here, like chapter 2's `AdditiveAttention`, has a `key`
projection, applied once for each sentence, and maps queries and projected keys
to scores. A decoder accepts any of them.

Source: Luong et al. (2015), section 3.1, equations 7 and 8,
    https://arxiv.org/abs/1508.04025. Departures: query and key may differ in
    width; a location score for S positions uses the first S of its rows.
Axes: B batch, T queries (target steps), S keys (source symbols), Dq and Dk
    width of query and key, A alignment width, P positions of a
    location score
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.additive import AdditiveAttention, additive_scores


def dot_scores(
    query: Float[Tensor, "B T Dq"], key: Float[Tensor, "B S Dk"]
) -> Float[Tensor, "B T S"]:
    """Return q · k for every query and key.

    Raises:
        ValueError: if query and key differ in width.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"a dot product needs equal widths, but the query is "
            f"{query.shape[-1]} wide and the key {key.shape[-1]}"
        )
    return query @ key.transpose(1, 2)


def general_scores(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W: Float[Tensor, "Dq Dk"],
) -> Float[Tensor, "B T S"]:
    """Return q · W k for every query and key.

    Raises:
        ValueError: if W does not fit the widths of query and key.
    """
    if W.shape != (query.shape[-1], key.shape[-1]):
        raise ValueError(
            f"W is {tuple(W.shape)} but query and key are "
            f"{(query.shape[-1], key.shape[-1])} wide"
        )
    return dot_scores(query, key @ W.T)


def concat_scores(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W: Float[Tensor, "A Dq+Dk"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "B T S"]:
    """Return v · tanh(W [q; k]) for every query and key.

    W [q; k] = W₁ q + W₂ k, so this is the additive score of chapter 2, and is
    computed as such: no pair is ever concatenated.

    Raises:
        ValueError: if W does not fit the widths of query and key.
    """
    widths = query.shape[-1], key.shape[-1]
    if W.shape[-1] != sum(widths):
        raise ValueError(
            f"W takes width {W.shape[-1]} but query and key are "
            f"{widths[0]} + {widths[1]} = {sum(widths)} wide"
        )
    W_query, W_key = W.split(widths, dim=1)
    return additive_scores(query, key, W_query, W_key, v)


def location_scores(
    query: Float[Tensor, "B T Dq"], W: Float[Tensor, "P Dq"], length: int
) -> Float[Tensor, "B T S"]:
    """Return the first S = `length` of the P scores W q, whatever the keys are.

    A position beyond P has the score -inf: the paper also ignores the last
    words of a longer sentence.
    """
    scores = query @ W[:length].T
    missing = max(0, length - W.shape[0])
    return nn.functional.pad(scores, (0, missing), value=-torch.inf)


class DotScore(nn.Module):
    """q · k: no parameters; query and key must have equal width."""

    def __init__(self, query: int, key: int):
        super().__init__()
        if query != key:
            raise ValueError(
                f"a dot product needs equal widths, but the query is {query} "
                f"wide and the key {key}"
            )
        self.key = nn.Identity()

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dk"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys."""
        return dot_scores(query, keys)


class ScaledDotScore(DotScore):
    """q · k / √D, chapter 4's score: the product divided by √ of the width."""

    def __init__(self, query: int, key: int):
        super().__init__(query, key)
        self.scale = key**-0.5

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dk"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys."""
        return dot_scores(query * self.scale, keys)


class GeneralScore(nn.Module):
    """q · W k with a learned W; `key` applies it, once for each sentence."""

    def __init__(self, query: int, key: int):
        super().__init__()
        self.key = nn.Linear(key, query, bias=False)

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dq"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys already projected."""
        return dot_scores(query, keys)


class ConcatScore(AdditiveAttention):
    """v · tanh(W [q; k]): chapter 2's score with its two matrices concatenated.

    W is drawn as one matrix (its entries are smaller than if the two parts were
    drawn alone), and then stored as its two parts.
    """

    def __init__(self, query: int, key: int, alignment: int):
        super().__init__(query, key, alignment)
        whole = nn.Linear(query + key, alignment, bias=False).weight.detach()
        with torch.no_grad():
            self.query.weight.copy_(whole[:, :query])
            self.key.weight.copy_(whole[:, query:])

    @property
    def matrix(self) -> Float[Tensor, "A _"]:
        """Return the matrix in the paper's notation: [W₁ W₂]."""
        return torch.cat([self.query.weight, self.key.weight], dim=1)


class LocationScore(nn.Module):
    """The first S rows of W q: positions scored by the query alone."""

    def __init__(self, query: int, length: int):
        super().__init__()
        self.place = nn.Linear(query, length, bias=False)
        self.key = nn.Identity()

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dk"]
    ) -> Float[Tensor, "B T S"]:
        """Return a score for each of the keys' positions."""
        return location_scores(query, self.place.weight, keys.shape[1])
