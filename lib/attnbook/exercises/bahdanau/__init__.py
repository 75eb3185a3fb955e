"""Exercises of the chapter on additive attention, one module each."""

from attnbook.exercises.bahdanau.additive_scores import check_additive_scores
from attnbook.exercises.bahdanau.alignment_error import check_alignment_error
from attnbook.exercises.bahdanau.alignment_explanation import (
    check_alignment_explanation,
)
from attnbook.exercises.bahdanau.attention_cost import check_attention_cost
from attnbook.exercises.bahdanau.context import check_context
from attnbook.exercises.bahdanau.decoder_fault import check_decoder_fault
from attnbook.exercises.bahdanau.decoder_step import check_decoder_step
from attnbook.exercises.bahdanau.initial_state import check_initial_state

__all__ = [
    "check_additive_scores",
    "check_alignment_error",
    "check_alignment_explanation",
    "check_attention_cost",
    "check_context",
    "check_decoder_fault",
    "check_decoder_step",
    "check_initial_state",
]
