"""Benchmarks that a reader runs: `python -m workshop.bench flash`.

They and what they measure import nothing beyond torch, triton, numpy and
jaxtyping, so that a bare GPU machine can run them.
"""
