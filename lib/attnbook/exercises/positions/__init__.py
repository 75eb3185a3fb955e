"""Exercises of the chapter on positions, one module each."""

from attnbook.exercises.positions.alibi import check_alibi
from attnbook.exercises.positions.new_angles import check_new_angles
from attnbook.exercises.positions.position_use import check_position_use
from attnbook.exercises.positions.relative_bias import check_relative_bias
from attnbook.exercises.positions.rotary_fault import check_rotary_fault
from attnbook.exercises.positions.rotate import check_rotate
from attnbook.exercises.positions.sinusoidal import check_sinusoidal

__all__ = [
    "check_alibi",
    "check_new_angles",
    "check_position_use",
    "check_relative_bias",
    "check_rotary_fault",
    "check_rotate",
    "check_sinusoidal",
]
