"""Exercises of the chapter on Luong's attention, one module each."""

from attnbook.exercises.luong.concat_scores import check_concat_scores
from attnbook.exercises.luong.general_scores import check_general_scores
from attnbook.exercises.luong.local_window import check_local_window

__all__ = [
    "check_concat_scores",
    "check_general_scores",
    "check_local_window",
]
