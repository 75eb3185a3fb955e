"""Diagnosing attention: what its weights and tests of it show.

`weights` has numbers about weights, which are symptoms. `behavior` changes
inputs that must not matter and measures the outputs. `inside` records what a
model computes, and `reference` compares a function with `attend`. All of it
works on models from elsewhere; the page "Debug my attention" says when to use
which.
"""

from attnbook.diagnose.behavior import (
    batch_test,
    leak_test,
    longer_padding_test,
    order_test,
    padding_test,
    prefix_test,
    repeat_test,
)
from attnbook.diagnose.inside import (
    first_nonfinite_layer,
    parameters_without_gradient,
    watch_attention,
)
from attnbook.diagnose.reference import known_mistakes, reference_test
from attnbook.diagnose.weights import (
    entropy,
    head_similarity,
    uniformity,
    weights_test,
)

__all__ = [
    "batch_test",
    "entropy",
    "first_nonfinite_layer",
    "head_similarity",
    "known_mistakes",
    "leak_test",
    "longer_padding_test",
    "order_test",
    "padding_test",
    "parameters_without_gradient",
    "prefix_test",
    "reference_test",
    "repeat_test",
    "uniformity",
    "watch_attention",
    "weights_test",
]
