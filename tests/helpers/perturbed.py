"""Modules whose parameters are not those that they begin with."""

import torch
from torch import nn

from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder


def perturb(module: nn.Module) -> nn.Module:
    """Return the module with all of its parameters moved."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return module


def build_decoder(config: DecoderConfig) -> ModernDecoder:
    """Return a perturbed decoder, always the same one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return perturb(ModernDecoder(config)).eval()


def build_varied_decoder(
    config: DecoderConfig, size: float = 1.0, seed: int = 0
) -> ModernDecoder:
    """Return a decoder in float64 whose greedy symbols do not repeat themselves."""
    model, rng = build_decoder(config).double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for x in model.blocks.parameters():
            x += size * torch.randn(x.shape, generator=rng, dtype=x.dtype)
    return model
