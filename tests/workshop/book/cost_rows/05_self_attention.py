"""Chapter 5: self-attention and cross-attention, with projections."""

import torch

from attnbook.attention.self_attention import (
    causal_self_attention,
    cross_attention,
    self_attention,
)
from cost_calls import equal_lengths


def call_self(function):
    def make(n):
        x = torch.randn(1, n.T, n.C)
        W = torch.randn(n.D, n.C), torch.randn(n.D, n.C), torch.randn(n.E, n.C)
        return lambda: function(x, *W), W

    return make


def call_cross(n):
    x, memory = torch.randn(1, n.T, n.C), torch.randn(1, n.S, n.M)
    W = torch.randn(n.D, n.C), torch.randn(n.D, n.M), torch.randn(n.E, n.M)
    return lambda: cross_attention(x, memory, *W), W


CALLS = {
    "cross-attention": call_cross,
    "self-attention": call_self(self_attention),
    "causal self-attention": call_self(causal_self_attention),
}
SIZES = {
    "self-attention": equal_lengths,
    "causal self-attention": equal_lengths,
}
