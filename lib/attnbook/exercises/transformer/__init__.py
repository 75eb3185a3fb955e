"""Exercises of the chapter on the Transformer, one module each."""

from attnbook.exercises.transformer.accuracy_explanation import (
    check_accuracy_explanation,
)
from attnbook.exercises.transformer.block import check_block
from attnbook.exercises.transformer.block_fault import check_block_fault
from attnbook.exercises.transformer.decoder_step import check_decoder_step
from attnbook.exercises.transformer.label_shift import check_label_shift
from attnbook.exercises.transformer.layer_norm import check_layer_norm
from attnbook.exercises.transformer.model_cost import check_model_cost
from attnbook.exercises.transformer.weight_tying import check_weight_tying

__all__ = [
    "check_accuracy_explanation",
    "check_block",
    "check_block_fault",
    "check_decoder_step",
    "check_label_shift",
    "check_layer_norm",
    "check_model_cost",
    "check_weight_tying",
]
