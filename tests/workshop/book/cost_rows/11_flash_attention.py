"""Chapter 11: tiled attention."""

from attnbook.attention.tiled import attend_tiled
from cost_calls import call_heads

CALLS = {
    "tiled": call_heads(lambda n: (lambda *x: attend_tiled(*x, n.R), ())),
}
SIZES = {"tiled": lambda n: {"R": 32}}  # the logarithms are an output, too
