"""Additive attention: a feed-forward network scores each query and key.

Source: Bahdanau et al. (2015), section 3.1, equations 5 and 6, and appendix
    A.1.2, https://arxiv.org/abs/1409.0473. The paper's W_a, U_a, v_a are
    W_query, W_key and v here.
Axes: B batch, T queries (target steps), S keys (source symbols), Dq and Dk
    width of query and key, A alignment width, E value width
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def additive_scores(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W_query: Float[Tensor, "A Dq"],
    W_key: Float[Tensor, "A Dk"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "B T S"]:
    """Return v · tanh(W_query q + W_key k) for every query and key.

    Raises:
        ValueError: if a matrix does not fit the width of what it projects.
    """
    for name, matrix, x in ("query", W_query, query), ("key", W_key, key):
        if matrix.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"W_{name} takes width {matrix.shape[-1]} "
                f"but the {name} is {x.shape[-1]} wide"
            )
    queries, keys = query @ W_query.T, key @ W_key.T
    return torch.tanh(queries[:, :, None] + keys[:, None]) @ v


def context(
    scores: Float[Tensor, "B T S"],
    value: Float[Tensor, "B S E"],
    lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B T S"]]:
    """Return each query's context vector and attention weights.

    The context vector is the weighted average of the values that are not
    padding.

    Args:
        scores: the score of each query and key.
        value: the values.
        lengths: how many of the S values are real, each at least 1.

    Raises:
        ValueError: on a length of zero or beyond S.
    """
    positions = scores.shape[-1]
    if lengths.min() < 1 or lengths.max() > positions:
        invalid = int(lengths.min() if lengths.min() < 1 else lengths.max())
        raise ValueError(
            f"a length is {invalid} but must lie between 1 and {positions}"
        )
    real = torch.arange(positions, device=scores.device) < lengths[:, None]
    weights = scores.masked_fill(~real[:, None], -torch.inf).softmax(dim=-1)
    # A padded value may be anything, NaN included, and 0 · NaN is NaN.
    value = value.masked_fill(~real[:, :, None], 0.0)
    return weights @ value, weights


class AdditiveAttention(nn.Module):
    """Additive scores with learned matrices (equation 6, appendix A.1.2)."""

    def __init__(self, query: int, key: int, alignment: int):
        super().__init__()
        self.query = nn.Linear(query, alignment, bias=False)
        self.key = nn.Linear(key, alignment, bias=False)
        self.v = nn.Parameter(torch.empty(alignment))
        nn.init.uniform_(self.v, -(alignment**-0.5), alignment**-0.5)

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys already projected.

        U_a h does not depend on the step, so the paper (A.1.2) computes it once
        for each sentence; the caller computes `self.key(memory)`.
        """
        queries = self.query(query)
        return torch.tanh(queries[:, :, None] + keys[:, None]) @ self.v
