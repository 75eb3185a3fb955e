"""Exercises of the chapter on the Transformer, one module each."""

from attnbook.exercises.transformer.block import check_block
from attnbook.exercises.transformer.decoder_step import check_decoder_step
from attnbook.exercises.transformer.label_shift import check_label_shift
from attnbook.exercises.transformer.layer_norm import check_layer_norm
from attnbook.exercises.transformer.weight_tying import check_weight_tying

__all__ = [
    "check_block",
    "check_decoder_step",
    "check_label_shift",
    "check_layer_norm",
    "check_weight_tying",
]
