"""How order gets in: positions added, as a bias, per query, or as a rotation.

One signature a family. `added`: positions (T,) to vectors (T, C), added to the
embeddings. `biases`: (T, S) to (H, T, S), added to the scores. `shaw`: queries
to (B, H, T, S), likewise, and weights to what is added to the output. `rotary`:
queries or keys and their positions to queries or keys, turned. `scaling`
changes the frequencies of a rotation for longer texts.

Chapter: chapters/08_positions
Source: named in each module.
Axes: named in each module.
"""
