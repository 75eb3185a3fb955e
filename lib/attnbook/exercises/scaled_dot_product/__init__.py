"""Exercises of the chapter on scaled dot-product attention, one module each."""

from attnbook.exercises.scaled_dot_product.attend import check_attend
from attnbook.exercises.scaled_dot_product.gradient import check_gradient
from attnbook.exercises.scaled_dot_product.weights import check_weights

__all__ = ["check_attend", "check_gradient", "check_weights"]
