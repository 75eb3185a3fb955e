"""Positional encodings: absolute, relative (bias or vectors) and rotary.

Each family has one signature. `absolute` maps positions (T,) to vectors (T, C)
that are added to the embeddings. `biases` maps (T, S) to (H, T, S), added to
the scores. `shaw` maps queries to (B, H, T, S), added to the scores, and
weights to a term added to the output. `rotary` rotates queries or keys by their
positions. `context_extension` changes the frequencies of the rotations for
longer sequences.

Source: named in each module.
Axes: named in each module.
"""
