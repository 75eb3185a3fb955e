"""Decoding: generation, caches of keys and values, speculation and batching."""
