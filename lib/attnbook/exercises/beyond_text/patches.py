"""Exercise: cut images into patches.

Source: Dosovitskiy et al. (2021), section 3.1, https://arxiv.org/abs/2010.11929
Axes: B batch, C channels, H and W rows and columns of pixels, N patches
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double
from attnbook.models.patches import cut_patches, require_division


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One patch; a row and a column of patches; then what hides mistakes."""

    def case(tries: str, *shape: int, size: int, gradient=False) -> Case:
        inputs = draw_normal(rng, *shape), size
        return Case(tries, inputs, gradient=gradient)

    double = to_double((draw_normal(rng, 1, 2, 2, 6), 2))
    return (
        case("with one patch", 1, 1, 2, 2, size=2),
        case("with two patches side by side", 1, 1, 2, 4, size=2),
        case("with two patches, one below the other", 1, 1, 4, 2, size=2),
        case("with three channels", 1, 3, 2, 4, size=2),
        case("with patches of one pixel", 1, 3, 2, 4, size=1),
        case("with all sizes equal", 2, 2, 4, 4, size=2),
        case("with as many patches as values", 1, 1, 6, 6, size=3),
        case("with several images", 2, 3, 6, 9, size=3, gradient=True),
        Case("in double precision", double, asked=False),
    )


ORDER = "permute(0, 2, 4, 1, 3, 5)"

check_patches = Exercise(
    title="patches of an image",
    stars=1,
    minutes=10,
    section="Images: patches and a Vision Transformer",
    solution=cut_patches,
    returns=("patches",),
    draw=draw,
    allowed="Everything in PyTorch is allowed.",
    without=frozenset({"heads"}),  # H is the height here
    helpers=(require_division,),
    key_line="patches = cells.permute(0, 2, 4, 1, 3, 5)",
    mistakes=(
        Mistake(
            "columns-first",
            "patches listed column by column",
            "the patches are listed column by column; it should be row by row",
            f"{ORDER} → permute(0, 4, 2, 1, 3, 5)",
        ),
        Mistake(
            "channel-last",
            "patch flattened with the channel last",
            "each patch is flattened as row, column, channel; it should be "
            "channel, row, column",
            f"{ORDER} → permute(0, 2, 4, 3, 5, 1)",
        ),
        Mistake(
            "pixels-transposed",
            "pixels of a patch transposed",
            "the pixels of each patch are listed column by column; it should "
            "be row by row",
            f"{ORDER} → permute(0, 2, 4, 1, 5, 3)",
        ),
        Mistake(
            "row-before-channel",
            "patch flattened with the row first",
            "each patch is flattened as row, channel, column; it should be "
            "channel, row, column",
            f"{ORDER} → permute(0, 2, 4, 3, 1, 5)",
        ),
        Mistake(
            "only-reshaped",
            "image reshaped without moving axes",
            "the image is only reshaped. Consecutive numbers in memory are "
            "pixels of one row, so each patch contains pieces of rows; move "
            "the axes of the grid before those of the pixels",
            f"cells.{ORDER} → cells",
        ),
        Mistake(
            "channels-apart",
            "each channel cut by itself",
            "the patches of one channel follow those of another; each patch "
            "should contain all channels",
            f"{ORDER} → permute(0, 1, 2, 4, 3, 5)",
        ),
        Mistake(
            "every-nth-pixel",
            "pixels that are far apart in one patch",
            "each patch contains pixels from all over the image; it should "
            "contain neighboring pixels. When an axis is split in two, the "
            "first is that of the grid and the second that of the pixels",
            (
                "rows, size, columns, size → size, rows, size, columns",
                f"{ORDER} → permute(0, 3, 5, 1, 2, 4)",
            ),
        ),
        Mistake(
            "height-and-width-swapped",
            "height and width confused",
            "the numbers of rows and columns of patches are swapped: the "
            "height is the third axis, and the width is the last",
            "height // size, width // size → width // size, height // size",
        ),
        Mistake(
            "not-transposed",
            "values before patches",
            "the axes of patches and of values are swapped, as "
            "`torch.nn.functional.unfold` returns them",
            lambda images, size: cut_patches(images, size).mT,
        ),
        Mistake(
            "from-the-bottom",
            "rows of patches from the bottom",
            "the rows of patches are listed from the bottom; the first patch "
            "should be at the top left",
            f"{ORDER} → {ORDER}.flip(1)",
        ),
    ),
)
