"""Exercises of the chapter on self-attention, one module each."""

from attnbook.exercises.self_attention.attention_fault import (
    check_attention_fault,
)
from attnbook.exercises.self_attention.causal_self_attention import (
    check_causal_self_attention,
)
from attnbook.exercises.self_attention.changed_outputs import (
    check_changed_outputs,
)
from attnbook.exercises.self_attention.cross_attention import (
    check_cross_attention,
)
from attnbook.exercises.self_attention.head_explanation import (
    check_head_explanation,
)
from attnbook.exercises.self_attention.self_attention import (
    check_self_attention,
)

__all__ = [
    "check_attention_fault",
    "check_causal_self_attention",
    "check_changed_outputs",
    "check_cross_attention",
    "check_head_explanation",
    "check_self_attention",
]
