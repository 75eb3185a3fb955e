"""Additive scores with little memory: one block of queries at a time.

Source: the score is that of Bahdanau et al. (2015), appendix A.1.2,
    https://arxiv.org/abs/1409.0473; computing it in blocks is this book's
    addition.
Axes: B batch, T queries, S keys, Dq and Dk width of query and key, A alignment
    width, R queries in a block
"""

import torch
from jaxtyping import Float
from torch import Tensor

# One block's B · R · S · A numbers, in single precision 4 MB: they stay in a
# processor's cache between the sum, the tanh and the product.
BUFFER_SIZE = 2**20


def additive_scores_in_blocks(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W_query: Float[Tensor, "A Dq"],
    W_key: Float[Tensor, "A Dk"],
    v: Float[Tensor, " A"],
    rows: int | None = None,
) -> Float[Tensor, "B T S"]:
    """Return what `additive_scores` returns, without its (B, T, S, A) tensor.

    One buffer (B, rows, S, A) is filled again and again, so no gradient can
    flow: a backward pass would need what was overwritten.

    Args:
        query: the queries.
        key: the keys.
        W_query: projects a query.
        W_key: projects a key.
        v: weight of each of the A numbers of a pair.
        rows: queries in a block; by default as many as fit in a buffer of
            `BUFFER_SIZE` numbers, and at least one.

    Raises:
        ValueError: if a gradient is required, or `rows` is below 1.
    """
    require_no_gradient(query, key, W_query, W_key, v)
    queries, keys = query @ W_query.T, (key @ W_key.T)[:, None]
    (B, T, A), S = queries.shape, key.shape[1]
    if rows is None:
        rows = max(1, BUFFER_SIZE // max(1, B * S * A))
    if rows < 1:
        raise ValueError(f"a block has at least 1 query, not {rows}")
    scores = queries.new_empty(B, T, S)
    buffer = queries.new_empty(B, min(rows, T), S, A)
    for start in range(0, T, rows):
        chunk = queries[:, start : start + rows, None]
        pairs = buffer[:, : chunk.shape[1]]
        torch.add(chunk, keys, out=pairs).tanh_()
        scores[:, start : start + rows] = pairs @ v
    return scores


def require_no_gradient(*tensors: Tensor) -> None:
    """Raise ValueError if autograd would have to follow these tensors."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise ValueError(
            "a block's buffer is overwritten, so no gradient can flow: call "
            "this under torch.no_grad(), or use additive_scores"
        )
