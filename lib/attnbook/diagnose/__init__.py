"""Diagnosing attention: what its weights and tests of it show.

`weights` has numbers about weights, which are symptoms, `heads` scores of the patterns
that heads are known for, `head_alarms` those heads with unusual numbers, `explanations`
distances of distributions. `behavior` changes inputs that must not matter and measures
the outputs, and runs one input in several ways. `recording` stores what a model
computes, and `reference` compares a function with `attend`. All of it works on models
from elsewhere; the page "Debug my attention" says when to use which.
"""

from attnbook.diagnose.behavior import (
    measure_batch_effect,
    measure_leak,
    measure_longer_padding,
    measure_order_effect,
    measure_packing_effect,
    measure_padding_effect,
    measure_path_effects,
    measure_prefix_effect,
    measure_randomness,
)
from attnbook.diagnose.head_alarms import (
    compare_with_thresholds,
    find_head_alarms,
    measure_heads,
)
from attnbook.diagnose.heads import (
    score_duplicate_token,
    score_first_token,
    score_induction,
    score_pattern,
    score_previous_token,
    uniform_causal_weights,
)
from attnbook.diagnose.recording import (
    find_missing_gradients,
    find_nonfinite_layer,
    record_attention,
)
from attnbook.diagnose.reference import compare_with_reference, find_known_mistakes
from attnbook.diagnose.weights import (
    attention_rollout,
    entropy,
    head_similarity,
    measure_weight_errors,
    normalized_entropy,
)

__all__ = [
    "attention_rollout",
    "compare_with_reference",
    "compare_with_thresholds",
    "entropy",
    "find_head_alarms",
    "find_known_mistakes",
    "find_missing_gradients",
    "find_nonfinite_layer",
    "head_similarity",
    "measure_batch_effect",
    "measure_heads",
    "measure_leak",
    "measure_longer_padding",
    "measure_order_effect",
    "measure_packing_effect",
    "measure_padding_effect",
    "measure_path_effects",
    "measure_prefix_effect",
    "measure_randomness",
    "measure_weight_errors",
    "normalized_entropy",
    "record_attention",
    "score_duplicate_token",
    "score_first_token",
    "score_induction",
    "score_pattern",
    "score_previous_token",
    "uniform_causal_weights",
]
