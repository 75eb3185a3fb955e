"""Context extension of rotary embeddings: lower frequencies for long sequences.

Each function returns frequencies for `rotary_angles`; a factor s of 1 changes
nothing.

Source: interpolation: Chen et al. (2023), section 2.3, equation 4,
    https://arxiv.org/abs/2306.15595; NTK-aware and YaRN: Peng et al. (2023),
    sections 3.1 to 3.4, https://arxiv.org/abs/2309.00071. Their ramp is
    linear in the number of rotations of a pair within the trained length;
    several implementations make it linear in the index of the pair instead.
    Llama 3.1: the function `apply_scaling` of Meta's code,
    https://github.com/meta-llama/llama-models, `models/llama3/model.py`.
Axes: P pairs of columns
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.positions.absolute import frequencies


def interpolate_positions(
    width: int,
    factor: float | int,
    base: float | int = 10000.0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "P"]:
    """Return all frequencies divided by the factor (position interpolation)."""
    return frequencies(width, base, device=device) / factor


def scale_ntk_aware(
    width: int,
    factor: float | int,
    base: float | int = 10000.0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "P"]:
    """Return frequencies of a larger base: base · factor^(D / (D - 2)).

    The fastest pair is unchanged, the slowest is divided by the factor.

    Raises:
        ValueError: if there is only one pair, which is both.
    """
    if width < 4:
        raise ValueError(f"at least 2 pairs (width 4) are needed, not {width}")
    larger = base * factor ** (width / (width - 2))
    return frequencies(width, larger, device=device)


def scale_yarn(
    width: int,
    factor: float | int,
    length: int,
    base: float | int = 10000.0,
    slow: float | int = 1.0,
    fast: float | int = 32.0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "P"]:
    """Return frequencies in which only slow pairs are divided by the factor.

    Args:
        width: D.
        factor: s, how many times longer the sequences become.
        length: the sequence length in training.
        base: of the frequencies.
        slow: pairs with fewer rotations in this length are divided.
        fast: pairs with more rotations are unchanged; in between, a linear
            ramp.
        device: of the frequencies; the default device unless given.
    """
    rates = frequencies(width, base, device=device)
    rotations = length * rates / (2 * math.pi)
    unchanged = ((rotations - slow) / (fast - slow)).clamp(0, 1)
    return unchanged * rates + (1 - unchanged) * rates / factor


def scale_dynamic_ntk(
    width: int,
    length: int,
    trained: int,
    base: float | int = 10000.0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "P"]:
    """Return NTK-aware frequencies for the present length of a sequence.

    The factor is length / trained, and 1 for sequences no longer than those of
    training. The frequencies change while a sequence grows, so a KV cache has
    to contain keys that are not rotated yet.

    Args:
        width: D.
        length: the present length of the sequence.
        trained: the sequence length in training.
        base: of the frequencies.
        device: of the frequencies; the default device unless given.
    """
    return scale_ntk_aware(width, max(1.0, length / trained), base, device)


def scale_llama3(
    width: int,
    factor: float | int = 8.0,
    length: int = 8192,
    base: float | int = 500000.0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "P"]:
    """Return the frequencies of Llama 3.1: YaRN's ramp from 1 to 4 rotations.

    Llama 3.1 has no attention factor. The defaults are those of its models.

    Args:
        width: D.
        factor: by which slow pairs are divided.
        length: the sequence length before the extension.
        base: of the frequencies.
        device: of the frequencies; the default device unless given.
    """
    return scale_yarn(width, factor, length, base, 1.0, 4.0, device)
