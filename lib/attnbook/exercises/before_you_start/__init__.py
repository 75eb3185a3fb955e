"""The self-check before the first chapter, one module each."""

from attnbook.exercises.before_you_start.batched_product import (
    check_batched_product,
)
from attnbook.exercises.before_you_start.broadcast_add import (
    check_broadcast_add,
)
from attnbook.exercises.before_you_start.gradient import check_gradient
from attnbook.exercises.before_you_start.gru_step import check_gru_step
from attnbook.exercises.before_you_start.lstm_step import check_lstm_step
from attnbook.exercises.before_you_start.softmax import check_softmax

__all__ = [
    "check_batched_product",
    "check_broadcast_add",
    "check_gradient",
    "check_gru_step",
    "check_lstm_step",
    "check_softmax",
]
