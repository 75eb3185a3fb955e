"""Exercises of the chapter on cost, one module each."""

from attnbook.exercises.cost.flops import check_flops
from attnbook.exercises.cost.intensity import check_intensity
from attnbook.exercises.cost.moved import check_moved
from attnbook.exercises.cost.peak import check_peak
from attnbook.exercises.cost.time_bound import check_time_bound

__all__ = [
    "check_flops",
    "check_intensity",
    "check_moved",
    "check_peak",
    "check_time_bound",
]
