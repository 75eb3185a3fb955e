"""Experiments for GPUs that no GPU has run yet. Nothing imports them.

`gluon_forward` is a forward kernel for Hopper GPUs, `tile_sweep` times every
tile size of the book's kernels. Tests compile the one and check on a CPU what
the other would measure. Whether their results are right is not known.
"""
