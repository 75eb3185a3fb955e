"""Training: batches, the loop, checkpoints, tasks and metrics."""
