"""Exercises of the chapter on masks, one module each."""

from attnbook.exercises.masks.causal import check_causal
from attnbook.exercises.masks.combine import check_combine
from attnbook.exercises.masks.interface_weights import check_interface_weights
from attnbook.exercises.masks.mask_fault import check_mask_fault
from attnbook.exercises.masks.masked_weights import check_masked_weights
from attnbook.exercises.masks.no_leak import check_no_leak
from attnbook.exercises.masks.packed_model import check_packed_model
from attnbook.exercises.masks.padding import check_padding

__all__ = [
    "check_causal",
    "check_combine",
    "check_interface_weights",
    "check_mask_fault",
    "check_masked_weights",
    "check_no_leak",
    "check_packed_model",
    "check_padding",
]
