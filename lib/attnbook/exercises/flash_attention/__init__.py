"""Exercises of the chapter on attention in tiles, one module each."""

from attnbook.exercises.flash_attention.merge import check_merge
from attnbook.exercises.flash_attention.online_softmax import (
    check_online_softmax,
)
from attnbook.exercises.flash_attention.run_difference import (
    check_run_difference,
)
from attnbook.exercises.flash_attention.tile_counts import check_tile_counts
from attnbook.exercises.flash_attention.tiled import check_tiled
from attnbook.exercises.flash_attention.tiled_backward import (
    check_tiled_backward,
)
from attnbook.exercises.flash_attention.tiled_fault import check_tiled_fault

__all__ = [
    "check_merge",
    "check_online_softmax",
    "check_run_difference",
    "check_tile_counts",
    "check_tiled",
    "check_tiled_backward",
    "check_tiled_fault",
]
