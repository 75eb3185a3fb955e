"""Positional encodings: absolute, relative (bias or vectors) and rotary.

`absolute` maps positions (T,) to vectors (T, C) that are added to the
embeddings, `biases` (T, S) to (H, T, S), added to the scores; Shaw's vectors also
have a term of the output. `rotary` rotates queries or keys by their positions.

Source: named in each module.
Axes: named in each module.
"""
