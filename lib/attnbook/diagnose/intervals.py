"""Attention over time against intervals in which something is known to happen.

A key stands for a short piece of time. A query about the n-th word should
attend to keys in the interval in which the n-th word is spoken.

Source: the same question about words instead of times is the alignment error of
    Och and Ney (2003), section 5.1, https://aclanthology.org/J03-1002
Axes: B leading axes, T queries (one for each interval), S keys
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def mark_intervals(
    intervals: Float[Tensor, "T 2"], keys: int, step: float
) -> Bool[Tensor, "T S"]:
    """Return True for the keys whose middle lies in a query's interval."""
    middles = (torch.arange(keys, device=intervals.device) + 0.5) * step
    begin, end = intervals[:, :1], intervals[:, 1:]
    return (middles >= begin) & (middles < end)


def crop_keys(weights: Float[Tensor, "*B T S"], keys: int) -> Float[Tensor, "*B T _"]:
    """Return the weights on the first keys, divided by their sum.

    Args:
        weights: rows that sum to 1.
        keys: how many are kept, such as those before the padding.
    """
    first = weights[..., :keys]
    return first / first.sum(dim=-1, keepdim=True)


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


def measure_mass_inside(
    weights: Float[Tensor, "*B T S"], intervals: Float[Tensor, "T 2"], step: float
) -> Float[Tensor, "*B"]:
    """Return the mean weight that queries give to keys in their interval."""
    marked = mark_intervals(intervals, weights.shape[-1], step)
    return (weights * marked).sum(dim=-1).mean(dim=-1)
