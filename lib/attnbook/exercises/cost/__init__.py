"""Exercises of the chapter on cost, one module each."""

from attnbook.exercises.cost.benchmark_fault import check_benchmark_fault
from attnbook.exercises.cost.bottleneck import check_bottleneck
from attnbook.exercises.cost.decoding_cost import check_decoding_cost
from attnbook.exercises.cost.flops import check_flops
from attnbook.exercises.cost.intensity import check_intensity
from attnbook.exercises.cost.moved import check_moved
from attnbook.exercises.cost.peak import check_peak
from attnbook.exercises.cost.time_bound import check_time_bound

__all__ = [
    "check_benchmark_fault",
    "check_bottleneck",
    "check_decoding_cost",
    "check_flops",
    "check_intensity",
    "check_moved",
    "check_peak",
    "check_time_bound",
]
