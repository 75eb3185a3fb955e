"""Chapter 10: attention in query chunks."""

from attnbook.attention.scaled_dot_product import attend_in_query_chunks
from cost_calls import call_heads

CALLS = {
    "in query chunks": call_heads(
        lambda n: (lambda *x: attend_in_query_chunks(*x, n.R), ())
    ),
}
