"""Diagnosing attention: what its weights tell, and what a test must show.

`weights` has numbers about weights, which are symptoms. `behaviour` changes
what must not matter, and looks whether it does. `inside` watches a model at
work, and `law` compares a function with `attend`. All of it works on models
that are not the book's; the page "Debug my attention" says when to use which.

Chapter: chapters/06_multi_head
Source: none (own work)
Axes: none
"""

from attnbook.diagnose.behaviour import (
    batch_test,
    leak_test,
    longer_padding_test,
    order_test,
    padding_test,
    prefix_test,
    repeat_test,
)
from attnbook.diagnose.inside import (
    first_not_finite,
    silent_parameters,
    watch_attention,
)
from attnbook.diagnose.law import known_mistakes, law_test
from attnbook.diagnose.weights import (
    entropy,
    head_similarity,
    uniformity,
    weights_test,
)

__all__ = [
    "batch_test",
    "entropy",
    "first_not_finite",
    "head_similarity",
    "known_mistakes",
    "law_test",
    "leak_test",
    "longer_padding_test",
    "order_test",
    "padding_test",
    "prefix_test",
    "repeat_test",
    "silent_parameters",
    "uniformity",
    "watch_attention",
    "weights_test",
]
