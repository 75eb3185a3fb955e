"""Exercises of the chapter on the encoder-decoder, one module each."""

from attnbook.exercises.encoder_decoder.error_rate import check_error_rate
from attnbook.exercises.encoder_decoder.greedy import check_greedy
from attnbook.exercises.encoder_decoder.last_state import check_last_state
from attnbook.exercises.encoder_decoder.masked_loss import check_masked_loss
from attnbook.exercises.encoder_decoder.reverse_source import (
    check_reverse_source,
)

__all__ = [
    "check_error_rate",
    "check_greedy",
    "check_last_state",
    "check_masked_loss",
    "check_reverse_source",
]
