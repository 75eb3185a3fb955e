"""Benchmarks that a reader runs: `python -m attnbook.bench flash`.

They and what they measure import nothing beyond torch, triton, numpy and
jaxtyping, so that a bare GPU machine can run them.

Chapter: chapters/11_flash_attention
Source: none
Axes: none
"""
