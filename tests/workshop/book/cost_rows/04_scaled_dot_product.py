"""Chapter 4: the reference implementation."""

from attnbook.attention.scaled_dot_product import attend
from cost_calls import call_function

CALLS = {"scaled dot product": call_function(attend)}
