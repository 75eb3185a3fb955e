"""Benchmarks of the GPU kernels: `python -m workshop.bench` and `make gpu`.

They import torch, triton, numpy and jaxtyping, so that a bare GPU machine can
run them.
"""
