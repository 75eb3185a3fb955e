"""Chapter 16: text that attends to an image, behind a gate."""

import torch

from attnbook.attention.multi_head import gated_cross_attention


def call_gated(n):
    text, image = torch.randn(1, n.T, n.C), torch.randn(1, n.S, n.M)
    learned = (
        torch.randn(n.D, n.C),
        torch.randn(n.D, n.M),
        torch.randn(n.C, n.M),
        torch.tensor(0.5),
    )
    return lambda: gated_cross_attention(text, image, *learned), learned


CALLS = {"gated cross-attention": call_gated}
