"""Exercises of the chapter on masks, one module each."""

from attnbook.exercises.masks.causal import check_causal
from attnbook.exercises.masks.combine import check_combine
from attnbook.exercises.masks.masked_weights import check_masked_weights
from attnbook.exercises.masks.no_leak import check_no_leak
from attnbook.exercises.masks.padding import check_padding

__all__ = [
    "check_causal",
    "check_combine",
    "check_masked_weights",
    "check_no_leak",
    "check_padding",
]
