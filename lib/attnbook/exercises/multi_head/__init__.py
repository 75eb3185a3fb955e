"""Exercises of the chapter on several heads, one module each."""

from attnbook.exercises.multi_head.grouped_query import check_grouped_query
from attnbook.exercises.multi_head.merge_heads import check_merge_heads
from attnbook.exercises.multi_head.multi_head import check_multi_head
from attnbook.exercises.multi_head.split_heads import check_split_heads

__all__ = [
    "check_grouped_query",
    "check_merge_heads",
    "check_multi_head",
    "check_split_heads",
]
