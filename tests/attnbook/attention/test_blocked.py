"""Windows and masks in blocks; test_reference.py compares them with `attend`."""

import pytest
import torch

from attnbook import masks
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.scaled_dot_product import attend
from precision import draw


def draw_inputs(T, S):
    return draw((2, 2, T, 5), (2, 2, S, 5), (2, 2, S, 7))


@pytest.mark.parametrize(
    ("T", "S", "size", "rows"), [(3, 17, 1, 3), (17, 3, 4, 1), (13, 13, 100, 100)]
)
def test_a_window_equals_its_mask(T, S, size, rows):
    inputs = draw_inputs(T, S)
    expected = attend(*inputs, masks.window(T, S, size))
    torch.testing.assert_close(attend_window(*inputs, size, rows=rows), expected)


@pytest.mark.parametrize("shape", [(17,), (11, 1), (2, 1, 1, 17)])
def test_a_mask_can_broadcast(shape):
    inputs = draw_inputs(11, 17)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5
    found = attend_in_blocks(*inputs, mask, rows=4)
    torch.testing.assert_close(found, attend(*inputs, mask))


def test_masked_out_blocks_are_not_read():
    query, key, value = draw_inputs(12, 12)
    mask = masks.window(12, 12, 4)
    expected = attend(query, key, value, mask)
    # The last chunk of 3 attends to keys 6 to 11: blocks 2 and 3.
    key[..., :6, :] = value[..., :6, :] = torch.nan
    for found in (
        attend_window(query, key, value, 4, rows=3),
        attend_in_blocks(query, key, value, mask, rows=3),
    ):
        torch.testing.assert_close(found[..., 9:, :], expected[..., 9:, :])


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("function", "change", "message"),
    [
        (attend_window, {"size": 4, "rows": 0}, "rows must be at least 1, not 0"),
        (attend_window, {"size": 0}, "a window has at least 1 key, not 0"),
        (
            attend_in_blocks,
            {"mask": torch.ones(3, 4).bool()},
            r"\(3, 4\) does not broadcast to 3 queries",
        ),
    ],
)
def test_what_does_not_fit_is_refused(function, change, message):
    query, key, value = draw_inputs(3, 5)
    given = {"query": query, "key": key, "value": value} | change
    with pytest.raises(ValueError, match=message):
        function(**given)
