"""Exercises of the chapter on efficient attention, one module each."""

from attnbook.exercises.efficient_attention.delta_step import check_delta_step
from attnbook.exercises.efficient_attention.linear_attention import (
    check_linear_attention,
)
from attnbook.exercises.efficient_attention.linear_fault import (
    check_linear_fault,
)
from attnbook.exercises.efficient_attention.longformer_mask import (
    check_longformer_mask,
)
from attnbook.exercises.efficient_attention.memory_kind import (
    check_memory_kind,
)
from attnbook.exercises.efficient_attention.pattern_counts import (
    check_pattern_counts,
)
from attnbook.exercises.efficient_attention.recurrent_step import (
    check_recurrent_step,
)
from attnbook.exercises.efficient_attention.sink_window import (
    check_sink_window,
)

__all__ = [
    "check_delta_step",
    "check_linear_attention",
    "check_linear_fault",
    "check_longformer_mask",
    "check_memory_kind",
    "check_pattern_counts",
    "check_recurrent_step",
    "check_sink_window",
]
