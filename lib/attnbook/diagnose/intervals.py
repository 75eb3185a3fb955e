"""Attention over time against intervals in which something is known to happen.

A key stands for a short piece of time. A query about the n-th word should
attend to keys in the interval in which the n-th word is spoken.

Source: the same question about words instead of times is the alignment error of
    Och and Ney (2003), section 5.1, https://aclanthology.org/J03-1002
Axes: B leading axes, T queries (one for each interval), S keys
"""

from jaxtyping import Float
from torch import Tensor


def find_peak_times(
    weights: Float[Tensor, "*B T S"], step: float
) -> Float[Tensor, "*B T"]:
    """Return the time of each query's largest weight: its key's middle."""
    return (weights.argmax(dim=-1) + 0.5) * step


def share_peaks_inside(
    times: Float[Tensor, "*B T"], intervals: Float[Tensor, "T 2"]
) -> Float[Tensor, "*B"]:
    """Return the share of the queries whose time lies in their interval.

    Raises:
        ValueError: if there are not as many intervals as queries.
    """
    if times.shape[-1] != len(intervals):
        raise ValueError(
            f"{times.shape[-1]} queries need as many intervals, not {len(intervals)}"
        )
    inside = (times >= intervals[:, 0]) & (times < intervals[:, 1])
    return inside.to(times.dtype).mean(dim=-1)
