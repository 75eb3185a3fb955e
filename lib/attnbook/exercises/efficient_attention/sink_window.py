"""Exercise: a causal window that keeps the first positions visible.

Source: Xiao et al. (2024), section 3.2, https://arxiv.org/abs/2309.17453
Axes: T positions
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def sink_window(length: int, window: int, sinks: int) -> Bool[Tensor, "T T"]:
    """Return True at the last `window` keys and the first `sinks` ones."""
    index = torch.arange(length)
    back = index[:, None] - index
    return (back >= 0) & ((back < window) | (index < sinks))


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; a window; one sink; then several."""

    def size(low, high):
        return int(draw_integers(rng, low, high, 1))

    length = size(15, 29)
    return (
        Case("with one position", (1, 1, 1)),
        Case("with a window alone", (6, 2, 0)),
        Case("with the own key and one sink", (5, 1, 1)),
        Case("with one sink", (7, 3, 1)),
        Case("with more sinks than keys in the window", (9, 2, 4)),
        Case("with a long sequence", (length, size(2, 5), size(2, 4))),
        Case("with a window beyond the length", (size(4, 7), 11, 2)),
        Case("with more sinks than positions", (size(3, 5), 2, 8)),
        Case("with hundreds of positions", (size(200, 300), 7, 3)),
    )


check_sink_window = Exercise(
    title="causal window with attention sinks",
    stars=1,
    minutes=10,
    section="Attention sinks: why a window needs the first token",
    solution=sink_window,
    returns=("mask",),
    draw=draw,
    without=frozenset({"long"}),  # 25 million pairs
    allowed="Everything in PyTorch is allowed; `attnbook.masks` has the answer in it.",
    mistakes=(
        Mistake(
            "no-sinks",
            "sinks not visible",
            "the first positions disappear behind the window; they should stay visible",
            "((back < window) | (index < sinks)) → (back < window)",
        ),
        Mistake(
            "no-window",
            "window missing",
            "only the first positions are visible; the window is missing",
            "((back < window) | (index < sinks)) → (index < sinks)",
        ),
        Mistake(
            "and",
            "`and` instead of `or`",
            "a key must be a sink and in the window; one of both is enough",
            "(back < window) | (index < sinks) → (back < window) & (index < sinks)",
        ),
        Mistake(
            "future-sinks",
            "sinks visible from before",
            "the first positions can attend to later sinks; the mask should "
            "be causal for sinks as well",
            "(back >= 0) & ((back < window) | (index < sinks)) "
            "→ ((back >= 0) & (back < window)) | (index < sinks)",
        ),
        Mistake(
            "not-causal",
            "window not causal",
            "later keys are visible; the mask should be causal",
            "(back >= 0) & ((back < window) → ((back.abs() < window)",
        ),
        Mistake(
            "everything-later",
            "future not masked out",
            "all later keys are visible: back < window is also true for "
            "negative distances",
            "(back >= 0) & → ",
        ),
        Mistake(
            "one-too-many",
            "one key too many",
            "the window has one key too many: it counts the position itself",
            "back < window → back <= window",
        ),
        Mistake(
            "one-too-few",
            "one key too few",
            "the window has one key too few",
            "back < window → back < window - 1",
        ),
        Mistake(
            "not-itself",
            "own position masked out",
            "a position cannot attend to itself; it should",
            "back >= 0 → back > 0",
        ),
        Mistake(
            "one-sink-too-many",
            "one sink too many",
            "there is one sink too many: positions are counted from 0",
            "index < sinks → index <= sinks",
        ),
        Mistake(
            "sinks-as-queries",
            "sinks on the wrong axis",
            "the first queries attend to all keys before them; it should be "
            "the first keys that stay visible",
            "index < sinks → index[:, None] < sinks",
        ),
        Mistake(
            "sinks-out-of-the-window",
            "sinks taken out of the window",
            "the sinks are taken out of the window's number of keys; the "
            "window keeps all of its keys",
            "back < window → back < max(1, window - sinks)",
        ),
        Mistake(
            "inverted",
            "inverted mask",
            "the mask is inverted: True should mean that a query can attend to a key",
            lambda length, window, sinks: ~sink_window(length, window, sinks),
        ),
        Mistake(
            "numbers",
            "numbers instead of booleans",
            "the mask contains the numbers 1 and 0, which other functions may "
            "add to the scores; it should be boolean",
            lambda length, window, sinks: sink_window(length, window, sinks).float(),
        ),
    ),
)
