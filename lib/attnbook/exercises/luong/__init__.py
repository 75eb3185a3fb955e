"""Exercises of the chapter on Luong's attention, one module each."""

from attnbook.exercises.luong.attention_fault import check_attention_fault
from attnbook.exercises.luong.concat_scores import check_concat_scores
from attnbook.exercises.luong.decoder_depth import check_decoder_depth
from attnbook.exercises.luong.general_scores import check_general_scores
from attnbook.exercises.luong.local_window import check_local_window
from attnbook.exercises.luong.two_factors import check_two_factors

__all__ = [
    "check_attention_fault",
    "check_concat_scores",
    "check_decoder_depth",
    "check_general_scores",
    "check_local_window",
    "check_two_factors",
]
