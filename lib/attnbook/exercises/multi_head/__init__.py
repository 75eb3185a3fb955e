"""Exercises of the chapter on multi-head attention, one module each."""

from attnbook.exercises.multi_head.copying_heads import check_copying_heads
from attnbook.exercises.multi_head.grouped_query import check_grouped_query
from attnbook.exercises.multi_head.head_cost import check_head_cost
from attnbook.exercises.multi_head.layer_fault import check_layer_fault
from attnbook.exercises.multi_head.merge_heads import check_merge_heads
from attnbook.exercises.multi_head.multi_head import check_multi_head
from attnbook.exercises.multi_head.split_heads import check_split_heads

__all__ = [
    "check_copying_heads",
    "check_grouped_query",
    "check_head_cost",
    "check_layer_fault",
    "check_merge_heads",
    "check_multi_head",
    "check_split_heads",
]
