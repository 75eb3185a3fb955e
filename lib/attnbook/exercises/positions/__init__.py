"""Exercises of the chapter on positions, one module each."""

from attnbook.exercises.positions.alibi import check_alibi
from attnbook.exercises.positions.relative_bias import check_relative_bias
from attnbook.exercises.positions.rotate import check_rotate
from attnbook.exercises.positions.sinusoidal import check_sinusoidal

__all__ = [
    "check_alibi",
    "check_relative_bias",
    "check_rotate",
    "check_sinusoidal",
]
