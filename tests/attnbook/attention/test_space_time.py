"""Joint, spatial and temporal attention, compared with masks."""

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.space_time import (
    JointAttention,
    SpaceAttention,
    TimeAttention,
    attend_over_space,
    attend_over_time,
    count_factorized_scores,
    count_joint_scores,
    same_frame_mask,
    same_place_mask,
)
from precision import assert_equals_reference, draw

B, H, T, N, D, E, C = 2, 3, 5, 7, 4, 6, 12
KINDS = {
    "joint": (None, JointAttention, None),
    "space": (attend_over_space, SpaceAttention, same_frame_mask(T, N)),
    "time": (attend_over_time, TimeAttention, same_place_mask(T, N)),
}
KIND = pytest.mark.parametrize("kind", KINDS)


INPUTS = (B, H, T, N, D), (B, H, T, N, D), (B, H, T, N, E)


@pytest.mark.parametrize("kind", ["space", "time"])
def test_each_kind_is_joint_attention_with_a_mask(kind):
    """Forwards and backwards, against the reference implementation."""
    function, _, mask = KINDS[kind]
    *inputs, upstream = draw(*INPUTS, (B, H, T, N, E))

    def masked(*inputs):
        output = attend(*(x.flatten(2, 3) for x in inputs), mask)
        return output.unflatten(2, (T, N))

    assert_equals_reference(function, masked, inputs, upstream)


@KIND
def test_each_layer_is_multi_head_attention_with_a_mask(kind):
    _, layer, mask = KINDS[kind]
    torch.manual_seed(0)
    model = layer(C, H).double()
    (x,) = draw((B, T, N, C))
    output, weights = model(x, need_weights=True)
    wanted, all_weights = model.attention(x.flatten(1, 2), mask=mask, need_weights=True)
    torch.testing.assert_close(output, wanted.unflatten(1, (T, N)))
    torch.testing.assert_close(model(x), output)
    table = all_weights.unflatten(2, (T, N)).unflatten(4, (T, N))
    if kind == "joint":
        torch.testing.assert_close(weights, all_weights)
    elif kind == "space":
        wanted = table.diagonal(dim1=2, dim2=4).permute(0, 4, 1, 2, 3)
        torch.testing.assert_close(weights.unflatten(0, (B, T)), wanted)
    else:
        wanted = table.diagonal(dim1=3, dim2=5).permute(0, 4, 1, 2, 3)
        torch.testing.assert_close(weights.unflatten(0, (B, N)), wanted)


def test_counted_scores_are_those_of_the_masks():
    assert count_joint_scores(T, N) == (T * N) ** 2
    masks = int(same_frame_mask(T, N).sum() + same_place_mask(T, N).sum())
    assert count_factorized_scores(T, N) == masks == T * N**2 + N * T**2
