"""Training: batches, the loop, checkpoints, decoding, search and metrics."""
