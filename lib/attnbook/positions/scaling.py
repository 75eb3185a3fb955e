"""Longer texts than trained on: slower rotations.

Each function returns frequencies for `angles`; a factor s of 1 changes nothing.

Chapter: chapters/08_positions
Source: interpolation: Chen et al. (2023), section 2.3, equation 4,
    https://arxiv.org/abs/2306.15595; NTK-aware and YaRN: Peng et al. (2023),
    sections 3.1, 3.2 and 3.4, https://arxiv.org/abs/2309.00071. Their ramp is
    over how often a pair turns in the trained length; several implementations
    make it straight over the number of the pair instead.
Axes: P pairs of columns
"""

import math

from jaxtyping import Float
from torch import Tensor

from attnbook.positions.added import frequencies


def interpolated(
    width: int, factor: float | int, base: float | int = 10000.0
) -> Float[Tensor, "P"]:
    """Return all frequencies divided by the factor: positions squeezed."""
    return frequencies(width, base) / factor


def ntk_aware(
    width: int, factor: float | int, base: float | int = 10000.0
) -> Float[Tensor, "P"]:
    """Return frequencies of a larger base: base · factor^(D / (D - 2)).

    The fastest pair stays as it is, the slowest is divided by the factor.

    Raises:
        ValueError: if there is but one pair, which is both.
    """
    if width < 4:
        raise ValueError(f"at least 2 pairs (width 4) are needed, not {width}")
    return frequencies(width, base * factor ** (width / (width - 2)))


def yarn(
    width: int,
    factor: float | int,
    length: int,
    base: float | int = 10000.0,
    slow: float | int = 1.0,
    fast: float | int = 32.0,
) -> Float[Tensor, "P"]:
    """Return slow pairs divided by the factor, fast ones as they are.

    Args:
        width: D.
        factor: s, how many times longer texts become.
        length: the trained one.
        base: of the frequencies.
        slow: pairs that turn less often in this length are divided.
        fast: pairs that turn more often stay; in between, a straight ramp.
    """
    steps = frequencies(width, base)
    turns = length * steps / (2 * math.pi)
    kept = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return kept * steps + (1 - kept) * steps / factor


def yarn_scale(factor: float | int) -> float:
    """Return what YaRN multiplies queries and keys by: 0.1 ln s + 1.

    The scores are therefore multiplied by its square.
    """
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
