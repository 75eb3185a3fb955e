"""Exercises of the chapter on the encoder-decoder, one module each."""

from attnbook.exercises.encoder_decoder.encoder_fault import (
    check_encoder_fault,
)
from attnbook.exercises.encoder_decoder.error_cause import check_error_cause
from attnbook.exercises.encoder_decoder.error_rate import check_error_rate
from attnbook.exercises.encoder_decoder.greedy import check_greedy
from attnbook.exercises.encoder_decoder.last_state import check_last_state
from attnbook.exercises.encoder_decoder.masked_loss import check_masked_loss
from attnbook.exercises.encoder_decoder.reverse_source import (
    check_reverse_source,
)
from attnbook.exercises.encoder_decoder.state_dependencies import (
    check_state_dependencies,
)

__all__ = [
    "check_encoder_fault",
    "check_error_cause",
    "check_error_rate",
    "check_greedy",
    "check_last_state",
    "check_masked_loss",
    "check_reverse_source",
    "check_state_dependencies",
]
