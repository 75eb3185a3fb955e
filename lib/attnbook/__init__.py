"""attnbook: the tested code behind the book *Attention, Measured*.

In reading order. Chapter 0: `figures`. Chapter 1: `data`, `vocabulary`,
`batching`, `encoder`, `encoder_decoder`, `training`, `checkpoints`, `search`,
`metrics`, `evidence`. Chapter 2: `bahdanau`. Chapter 3: `masked_softmax`,
`luong`, `local_attention`, `luong_decoder`, `additive_blocks`,
`allocations`. Chapter 4: `scaled_dot_product`, `budget`,
`attention_gradient`, `kernel_smoothing`, `only_attends`.
Chapter 5: `self_attention`. Chapter 6: `multi_head`, `multi_head_memory`,
`grouped_query`, `several_lookups`, `diagnose`. Chapter 7: `masks`,
`blocked_window`. Chapter 8: `positions`, `attention_only`.
Chapter 9: `layer_norm`, `transformer_blocks`, `transformer`,
`language_model`, `from_pytorch`, `attention_maps`, `steady_attention`.
Chapter 10: `cost`. Chapter 11: `online_softmax`, `tiled`, `flash`, `bench`.
Everywhere: `exercises`, `solutions`, `widgets`, `grade`, which grades
notebooks, and `book`, which builds the pages.

Importing `attnbook` itself imports nothing else, torch least of all.
"""

__version__ = "0.1.0"
