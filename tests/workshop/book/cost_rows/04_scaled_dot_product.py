"""Chapter 4: the reference implementation, and kernel smoothing."""

from attnbook.attention.scaled_dot_product import attend, nadaraya_watson
from cost_calls import call_function

CALLS = {
    "scaled dot product": call_function(attend),
    "kernel smoothing": call_function(
        lambda query, key, value: nadaraya_watson(query, key, value, 1.0)
    ),
}
