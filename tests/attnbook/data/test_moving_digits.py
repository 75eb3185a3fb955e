"""Clips of a moving digit: where it is, and what each frame shows."""

import pytest
import torch

from attnbook.data.digits import (
    DIRECTIONS,
    bounce,
    draw_readable_frames,
    draw_which_digit,
    draw_which_direction,
    render_clips,
    shrink_digits,
    wrap,
)

DIGITS = torch.rand(7, 5, 5, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(7)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_bouncing_digit_turns_back_at_the_borders():
    """Compared with a loop that reverses the velocity at a border."""
    start, velocity = (
        torch.tensor([[0, 3], [4, 5]]),
        torch.tensor([[2, -1]] * 2),
    )
    found = bounce(start, velocity, 11, room=5)
    for clip, (row, column) in enumerate(start.tolist()):
        for axis, (at, step) in enumerate(((row, 2), (column, -1))):
            for t in range(11):
                assert found[clip, t, axis] == at
                at += step
                if at > 5:
                    at, step = 10 - at, -step
                elif at < 0:
                    at, step = -at, -step


def test_a_wrapped_digit_enters_at_the_opposite_border():
    found = wrap(torch.tensor([[4, 1]]), torch.tensor([[2, -1]]), 4, size=7)
    assert found.tolist() == [[[4, 1], [6, 0], [1, 6], [3, 5]]]


def test_digits_are_drawn_at_their_positions():
    digits = DIGITS[:2][:, None].expand(-1, 3, -1, -1)  # (B, T, D, D)
    position = torch.tensor([[[0, 0], [2, 3], [6, 5]], [[4, 4], [0, 8], [8, 0]]])
    frames = render_clips(digits, position, size=9)
    for b in range(2):
        for t in range(3):
            row, column = position[b, t].tolist()
            wanted = torch.zeros(9, 9)
            wanted[:5, :5] = DIGITS[b]
            wanted = wanted.roll((row, column), (0, 1))
            assert torch.equal(frames[b, t], wanted)


def test_a_shrunk_image_has_the_means_of_squares():
    images = torch.arange(2 * 4 * 6, dtype=torch.uint8).reshape(2, 4, 6)
    found = shrink_digits(images, 2)
    assert found.shape == (2, 2, 3)
    wanted = images[1, 2:4, 4:6].float().mean() / 255
    torch.testing.assert_close(found[1, 1, 2], wanted)


def test_readable_frames_show_the_digit_and_the_others_its_pixels():
    clips = draw_which_digit(DIGITS, LABELS, 6, rng(1), frames=5, size=12)
    assert clips.frames.shape == (6, 5, 12, 12)
    for b in range(6):
        digit = DIGITS[clips.label[b]]
        for t in range(5):
            row, column = clips.position[b, t].tolist()
            square = slice(row, row + 5), slice(column, column + 5)
            shown = clips.frames[b, t][square]
            assert torch.equal(shown, digit) == bool(clips.readable[b, t])
            assert torch.equal(shown.flatten().sort()[0], digit.flatten().sort()[0])
            wanted = torch.zeros(12, 12, dtype=torch.bool)
            wanted[square] = True
            assert torch.equal(clips.inside[b, t], wanted)
    assert (clips.frames[~clips.inside] == 0).all()


def test_a_digit_moves_in_the_direction_of_its_class():
    clips = draw_which_direction(DIGITS, 40, rng(1), size=11, speed=3)
    steps = torch.tensor([*DIRECTIONS.values()])[clips.label]
    for t in range(5):
        moved = clips.frames[:, t + 1]
        for b, step in enumerate((3 * steps).tolist()):
            assert torch.equal(moved[b], clips.frames[b, t].roll(step, (0, 1)))
    assert {*clips.label.tolist()} == {0, 1, 2, 3}
    assert clips.readable.all() and (clips.inside.sum((2, 3)) == 25).all()


@pytest.mark.refusal
@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: shrink_digits(torch.zeros(1, 6, 8).byte(), 4),
            "6 by 8 .* of 4,",
        ),
        (
            lambda: draw_readable_frames(2, 5, 6, rng()),
            "6 readable frames .* clips of 5 frames",
        ),
        (lambda: draw_readable_frames(2, 5, 0, rng()), "0 readable .* of 5"),
        (
            lambda: draw_which_digit(DIGITS, LABELS, 2, rng(), size=4),
            "5 by 5 pixels .* 4 by 4",
        ),
        (
            lambda: draw_which_direction(DIGITS, 2, rng(), size=3),
            "5 by 5 pixels .* 3 by 3",
        ),
    ],
)
def test_what_is_not_possible_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
