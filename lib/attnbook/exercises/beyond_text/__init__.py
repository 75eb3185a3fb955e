"""Exercises of the chapter on attention beyond text, one module each."""

from attnbook.exercises.beyond_text.gated_cross_attention import (
    check_gated_cross_attention,
)
from attnbook.exercises.beyond_text.graph_attention import (
    check_graph_attention,
)
from attnbook.exercises.beyond_text.graph_fault import check_graph_fault
from attnbook.exercises.beyond_text.map_kind import check_map_kind
from attnbook.exercises.beyond_text.patches import check_patches
from attnbook.exercises.beyond_text.space_time_counts import (
    check_space_time_counts,
)

__all__ = [
    "check_gated_cross_attention",
    "check_graph_attention",
    "check_graph_fault",
    "check_map_kind",
    "check_patches",
    "check_space_time_counts",
]
