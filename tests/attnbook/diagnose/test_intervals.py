"""Scores of attention over time, on weights made by hand."""

import pytest
import torch

from attnbook.diagnose.intervals import (
    find_peak_times,
    share_peaks_inside,
)

# Two words, ten keys of 0.1 s.
INTERVALS = torch.tensor([[0.2, 0.4], [0.6, 0.9]])
STEP = 0.1
WEIGHTS = torch.tensor(
    [
        [0.0, 0.1, 0.2, 0.5, 0.0, 0.0, 0.1, 0.1, 0.0, 0.0],
        [0.0, 0.0, 0.1, 0.4, 0.0, 0.1, 0.2, 0.1, 0.1, 0.0],
    ]
)


def test_one_of_two_peaks_is_inside():
    times = find_peak_times(WEIGHTS, STEP)
    torch.testing.assert_close(times, torch.tensor([0.35, 0.35]))
    assert share_peaks_inside(times, INTERVALS) == 0.5
    heads = torch.stack([times, torch.tensor([0.2, 0.89])])
    assert share_peaks_inside(heads, INTERVALS).tolist() == [0.5, 1.0]
    # An interval has its begin and not its end.
    assert share_peaks_inside(torch.tensor([0.4, 0.6]), INTERVALS) == 0.5


@pytest.mark.refusal
def test_a_missing_interval_is_refused():
    with pytest.raises(ValueError, match=r"2 queries .* intervals, not 1"):
        share_peaks_inside(torch.zeros(2), INTERVALS[:1])
