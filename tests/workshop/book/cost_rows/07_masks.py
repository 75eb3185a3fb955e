"""Chapter 7: attention under a window and under any mask, in blocks."""

import torch

from attnbook.attention.blocked import attend_in_blocks, attend_window
from cost_calls import call_heads, equal_lengths


def build_block_diagonal(n):
    block = torch.arange(n.T) // n.R
    mask = block[:, None] == block
    return lambda *given: attend_in_blocks(*given, mask, n.R), ()


CALLS = {
    "window, in blocks": call_heads(
        lambda n: (lambda *x: attend_window(*x, n.w, n.R), ())
    ),
    "any mask, in blocks": call_heads(build_block_diagonal),
}
SIZES = {
    "window, in blocks": equal_lengths,
    "any mask, in blocks": lambda n: {
        "T": 4 * n["R"],
        "S": 4 * n["R"],
        "f": 0.25,
    },
}
