"""Chapter 12: block-sparse and linear attention; the delta rule."""

import torch
import torch.nn.functional as F

from attnbook.attention.delta_rule import attend_delta_chunked
from attnbook.attention.linear import attend_linear_chunked
from attnbook.attention.sparse import attend_block_sparse
from cost_calls import call_heads


def build_block_sparse(n):
    layout = torch.eye(n.T // n.R, dtype=torch.bool)
    return lambda *given: attend_block_sparse(*given, layout), ()


def build_delta(n):
    beta = torch.full((1, n.H, n.T), 0.5)
    return (
        lambda query, key, value: attend_delta_chunked(
            query, F.normalize(key, dim=-1), value, beta, chunk=n.R
        ),
        (),
    )


def use_four_chunks(n):
    return {"T": 4 * n["R"], "S": 4 * n["R"], "f": 0.25}


CALLS = {
    "block-sparse": call_heads(build_block_sparse),
    "linear, in chunks": call_heads(
        lambda n: (lambda *x: attend_linear_chunked(*x, chunk=n.R), ())
    ),
    "delta rule, in chunks": call_heads(build_delta),
}
SIZES = {
    "block-sparse": use_four_chunks,
    "linear, in chunks": use_four_chunks,
    "delta rule, in chunks": lambda n: {"R": 32, "T": 128, "S": 128},
}
