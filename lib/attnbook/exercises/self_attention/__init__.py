"""Exercises of the chapter on self-attention, one module each."""

from attnbook.exercises.self_attention.causal_self_attention import (
    check_causal_self_attention,
)
from attnbook.exercises.self_attention.cross_attention import (
    check_cross_attention,
)
from attnbook.exercises.self_attention.self_attention import (
    check_self_attention,
)

__all__ = [
    "check_causal_self_attention",
    "check_cross_attention",
    "check_self_attention",
]
