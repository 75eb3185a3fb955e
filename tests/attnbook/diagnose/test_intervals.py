"""Scores of attention over time, on weights made by hand."""

import pytest
import torch

from attnbook.diagnose.intervals import (
    crop_keys,
    find_peak_times,
    mark_intervals,
    measure_mass_inside,
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


def test_a_key_is_inside_if_its_middle_is():
    marked = mark_intervals(INTERVALS, 10, STEP)
    assert marked[0].nonzero().flatten().tolist() == [2, 3]
    assert marked[1].nonzero().flatten().tolist() == [6, 7, 8]
    (marked,) = mark_intervals(torch.tensor([[0.24, 0.44]]), 10, STEP)
    assert marked.nonzero().flatten().tolist() == [2, 3]


def test_one_of_two_peaks_is_inside():
    times = find_peak_times(WEIGHTS, STEP)
    torch.testing.assert_close(times, torch.tensor([0.35, 0.35]))
    assert share_peaks_inside(times, INTERVALS) == 0.5
    heads = torch.stack([times, torch.tensor([0.2, 0.89])])
    assert share_peaks_inside(heads, INTERVALS).tolist() == [0.5, 1.0]
    # An interval has its begin and not its end.
    assert share_peaks_inside(torch.tensor([0.4, 0.6]), INTERVALS) == 0.5


def test_the_mass_inside_is_the_mean_over_the_queries():
    found = measure_mass_inside(WEIGHTS, INTERVALS, STEP)
    torch.testing.assert_close(found, torch.tensor((0.7 + 0.4) / 2))


def test_cropped_weights_sum_to_1():
    found = crop_keys(WEIGHTS, 7)
    assert found.shape == (2, 7)
    torch.testing.assert_close(found[0], WEIGHTS[0, :7] / 0.9)


@pytest.mark.refusal
def test_a_missing_interval_is_refused():
    with pytest.raises(ValueError, match=r"2 queries .* intervals, not 1"):
        share_peaks_inside(torch.zeros(2), INTERVALS[:1])
