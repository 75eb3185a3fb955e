"""Spatial and temporal attention, compared with masks."""

import pytest

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.space_time import (
    attend_over_space,
    attend_over_time,
    count_factorized_scores,
    count_joint_scores,
    same_frame_mask,
    same_place_mask,
)
from precision import assert_equals_reference, draw

B, H, T, N, D, E = 2, 3, 5, 7, 4, 6
KINDS = {
    "space": (attend_over_space, same_frame_mask(T, N)),
    "time": (attend_over_time, same_place_mask(T, N)),
}
INPUTS = (B, H, T, N, D), (B, H, T, N, D), (B, H, T, N, E)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_joint_attention_with_a_mask(kind):
    """Forwards and backwards, against the reference implementation."""
    function, mask = KINDS[kind]
    *inputs, upstream = draw(*INPUTS, (B, H, T, N, E))

    def masked(*inputs):
        output = attend(*(x.flatten(2, 3) for x in inputs), mask)
        return output.unflatten(2, (T, N))

    assert_equals_reference(function, masked, inputs, upstream)


def test_counted_scores_are_those_of_the_masks():
    assert count_joint_scores(T, N) == (T * N) ** 2
    masks = int(same_frame_mask(T, N).sum() + same_place_mask(T, N).sum())
    assert count_factorized_scores(T, N) == masks == T * N**2 + N * T**2
