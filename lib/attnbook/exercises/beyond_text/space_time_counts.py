"""Exercise: predict the cost and the reach of attention in space and time.

Source: joint and factorized attention: Arnab et al. (2021), section 3,
    https://arxiv.org/abs/2103.15691; divided attention: Bertasius, Wang and
    Torresani (2021), section 3, https://arxiv.org/abs/2102.05095
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases


def space_time_counts(frames: int, height: int, width: int, size: int) -> list[int]:
    """Return how many tokens and scores attention to a clip has.

    Each frame is cut into patches. The counts are, in this order: tokens;
    scores of joint attention, from every token to every token; scores of
    factorized attention, first to the patches of the same frame, then to the
    patches at the same place in all frames; the same if the second attends to
    the same and earlier frames only; pairs of an output of this causal layer
    and an input on which it depends.

    Args:
        frames: of the clip.
        height: of a frame, in pixels; a multiple of the size.
        width: of a frame, in pixels; a multiple of the size.
        size: pixels on each side of a patch.
    """
    patches = (height // size) * (width // size)
    tokens = frames * patches
    joint = tokens**2
    space = frames * patches**2
    time = patches * frames**2
    # Pairs of a frame and itself or an earlier one
    pairs = frames * (frames + 1) // 2
    causal = space + patches * pairs
    reached = pairs * patches**2
    return [tokens, joint, space + time, causal, reached]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A few frames of four patches; then other sizes, and single ones."""

    def size(low: int, high: int) -> int:
        return int(draw_integers(rng, low, high, 1))

    first = Case("with 3 frames of 2 by 2 patches", (3, 8, 8, 4))
    cases = (
        Case("with many frames", (size(20, 40), 12, 12, 4)),
        Case("with many patches", (size(2, 4), 64, 64, 8)),
        Case("with wide frames", (size(4, 7), 8, 8 * size(3, 5), 4)),
        Case("with patches of one pixel", (size(2, 4), 5, 7, 1)),
        Case("with a single frame", (1, 16, 8 * size(1, 3), 4)),
        Case("with a single patch per frame", (size(5, 9), 16, 16, 16)),
        Case("with as many frames as patches", (6, 8, 12, 4)),
    )
    return shuffle_cases((first, *cases), rng)


check_space_time_counts = Exercise(
    title="scores of attention in space and time",
    stars=2,
    minutes=15,
    section="Joint and factorized attention over space and time",
    solution=space_time_counts,
    returns=("counts",),
    draw=draw,
    allowed="Everything is allowed; `attnbook.attention.space_time` computes "
    "such attention.",
    key_line="causal = space + patches * pairs",
    mistakes=(
        Mistake(
            "pixels-as-tokens",
            "pixels counted as tokens",
            "every pixel is counted as a token; each patch is one token",
            lambda frames, height, width, size: space_time_counts(
                frames, height, width, 1
            ),
        ),
        Mistake(
            "sides-added",
            "rows and columns added",
            "the numbers of rows and columns of patches are added; a frame "
            "has as many patches as their product",
            "(height // size) * → height // size +",
        ),
        Mistake(
            "one-frame",
            "tokens of one frame",
            "the first count is that of one frame; the tokens are those of all frames",
            "[tokens → [patches",
        ),
        Mistake(
            "joint-within-frames",
            "joint attention within frames",
            "joint attention is counted within each frame; every token "
            "attends to the tokens of all frames",
            "joint = tokens**2 → joint = frames * patches**2",
        ),
        Mistake(
            "multiplied",
            "two steps multiplied",
            "the scores of the two steps are multiplied; one step follows "
            "the other, so their scores add up",
            "space + time, → space * time,",
        ),
        Mistake(
            "space-once",
            "spatial attention of one frame",
            "spatial attention is counted for one frame; each frame has its own scores",
            "space = frames * patches**2 → space = patches**2",
        ),
        Mistake(
            "time-once",
            "temporal attention of one place",
            "temporal attention is counted for one place; each patch of a "
            "frame has its own scores",
            "time = patches * frames**2 → time = frames**2",
        ),
        Mistake(
            "own-frame-missing",
            "own frame left out",
            "a causal query does not attend to its own frame; it should "
            "attend to the same and to earlier frames",
            "(frames + 1) → (frames - 1)",
        ),
        Mistake(
            "half",
            "half of all pairs",
            "causal attention is taken for half of all pairs of frames. It is "
            "more than half, because each frame also attends to itself",
            "frames * (frames + 1) // 2 → frames**2 // 2",
        ),
        Mistake(
            "space-causal",
            "causal spatial attention",
            "spatial attention is made causal as well; only temporal "
            "attention should be",
            "causal = space → causal = frames * (patches * (patches + 1) // 2)",
        ),
        Mistake(
            "one-step-reach",
            "scores taken for dependencies",
            "the last count is that of the scores. An output depends on "
            "all patches of each frame that it attends to, because "
            "spatial attention has mixed them before",
            "causal, reached] → causal, causal]",
        ),
        Mistake(
            "future-reached",
            "later frames reached",
            "the last count contains later frames; no output of the "
            "causal layer depends on these",
            "reached = pairs * patches**2 → reached = tokens**2",
        ),
    ),
)
