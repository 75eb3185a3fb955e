"""Exercises of the chapter on scaled dot-product attention, one module each."""

from attnbook.exercises.scaled_dot_product.attend import check_attend
from attnbook.exercises.scaled_dot_product.attention_fault import (
    check_attention_fault,
)
from attnbook.exercises.scaled_dot_product.gradient import check_gradient
from attnbook.exercises.scaled_dot_product.predicted_weights import (
    check_predicted_weights,
)
from attnbook.exercises.scaled_dot_product.score_kind import check_score_kind
from attnbook.exercises.scaled_dot_product.weights import check_weights

__all__ = [
    "check_attend",
    "check_attention_fault",
    "check_gradient",
    "check_predicted_weights",
    "check_score_kind",
    "check_weights",
]
