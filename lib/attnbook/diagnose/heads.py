"""Scores of heads: how much weight a head gives to the keys of a pattern.

A score is the mean weight, over the queries for which the pattern marks a key,
on the keys that it marks. Four patterns have names: the previous token, earlier
occurrences of the same token, the tokens that followed these (induction), and
the first token. Uniform causal weights give each score's chance level.

Source: induction heads, and the patterns on repeated random tokens: Elhage et
    al. (2021), https://transformer-circuits.pub/2021/framework/index.html;
    Olsson et al. (2022), https://arxiv.org/abs/2209.11895; duplicate-token
    heads: Wang et al. (2022), https://arxiv.org/abs/2211.00593. Departure: a
    query's weight on all marked keys counts, not that on one of them.
Axes: B leading axes, such as layers and heads; T positions
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def mark_previous_token(
    length: int, device: torch.device | str | None = None
) -> Bool[Tensor, "T T"]:
    """Return True where the key is one position before the query."""
    ones = torch.ones(length, length, dtype=torch.bool, device=device)
    return ones.tril(-1) & ones.triu(-1)


def mark_first_token(
    length: int, device: torch.device | str | None = None
) -> Bool[Tensor, "T T"]:
    """Return True at key 0 for every later query.

    Query 0 is left out, because under a causal mask it has no other key.
    """
    marked = torch.zeros(length, length, dtype=torch.bool, device=device)
    marked[1:, :1] = True
    return marked


def mark_duplicate_tokens(ids: Int[Tensor, " T"]) -> Bool[Tensor, "T T"]:
    """Return True at earlier occurrences of the query's token."""
    return (ids[:, None] == ids).tril(-1)


def mark_induction(ids: Int[Tensor, " T"]) -> Bool[Tensor, "T T"]:
    """Return True where the key follows an earlier occurrence of the token.

    If the query's token also stands directly before it, the query itself
    follows an earlier occurrence and is marked too.
    """
    earlier = mark_duplicate_tokens(ids)
    first = torch.zeros_like(earlier[:, :1])
    return torch.cat([first, earlier[:, :-1]], dim=1)


def uniform_causal_weights(
    length: int, device: torch.device | str | None = None
) -> Float[Tensor, "1 T T"]:
    """Return a head that gives each key up to the query the same weight.

    Its scores are the chance levels of a causal model's heads.
    """
    ones = torch.ones(1, length, length, device=device).tril()
    return ones / ones.sum(dim=-1, keepdim=True)


def score_pattern(
    weights: Float[Tensor, "*B T T"], marked: Bool[Tensor, "T T"]
) -> Float[Tensor, "*B"]:
    """Return each head's mean weight on marked keys.

    The mean is over the queries that have a marked key; without any, the score
    is 0.

    Raises:
        ValueError: if the weights are not those of the marked positions.
    """
    if weights.shape[-2:] != marked.shape:
        raise ValueError(
            f"weights of {weights.shape[-2]} queries and {weights.shape[-1]} "
            f"keys do not fit a pattern of {marked.shape[0]} queries and "
            f"{marked.shape[1]} keys"
        )
    on_marked = weights.masked_fill(~marked, 0.0).sum(dim=-1)
    queries = marked.any(dim=-1).sum().clamp(min=1)
    return on_marked.sum(dim=-1) / queries


def score_previous_token(weights: Float[Tensor, "*B T T"]) -> Float[Tensor, "*B"]:
    """Return each head's mean weight on the token before the query."""
    marked = mark_previous_token(weights.shape[-2], weights.device)
    return score_pattern(weights, marked)


def score_first_token(weights: Float[Tensor, "*B T T"]) -> Float[Tensor, "*B"]:
    """Return each head's mean weight on token 0, the attention sink."""
    marked = mark_first_token(weights.shape[-2], weights.device)
    return score_pattern(weights, marked)


def score_duplicate_token(
    weights: Float[Tensor, "*B T T"], ids: Int[Tensor, " T"]
) -> Float[Tensor, "*B"]:
    """Return each head's mean weight on earlier occurrences of a token."""
    return score_pattern(weights, mark_duplicate_tokens(ids))


def score_induction(
    weights: Float[Tensor, "*B T T"], ids: Int[Tensor, " T"]
) -> Float[Tensor, "*B"]:
    """Return each head's mean weight on what followed the same token before."""
    return score_pattern(weights, mark_induction(ids))
