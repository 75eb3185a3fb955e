"""Images as sequences of patches, and back.

Source: Dosovitskiy et al. (2021), "An image is worth 16x16 words: Transformers
    for image recognition at scale", §3.1, https://arxiv.org/abs/2010.11929.
    Each patch is flattened as channel, row, column; any other order only
    permutes the columns of the projection that follows.
Axes: B batch, C channels, H and W rows and columns of pixels, N patches,
    P values of a patch: C · size²
"""

from jaxtyping import Shaped
from torch import Tensor


def cut_patches(
    images: Shaped[Tensor, "B C H W"], size: int
) -> Shaped[Tensor, "B N P"]:
    """Return the patches of images, row by row, from left to right.

    Args:
        images: their height and width are multiples of `size`.
        size: pixels on each side of a patch.

    Raises:
        ValueError: if the images do not divide into such patches.
    """
    batch, channels, height, width = images.shape
    require_division(height, width, size)
    rows, columns = height // size, width // size
    cells = images.reshape(batch, channels, rows, size, columns, size)
    patches = cells.permute(0, 2, 4, 1, 3, 5)  # B, rows, columns, C, size, size
    return patches.reshape(batch, rows * columns, channels * size**2)


def join_patches(
    patches: Shaped[Tensor, "B N P"], height: int, width: int, size: int
) -> Shaped[Tensor, "B C H W"]:
    """Return the images that `cut_patches` cut: its inverse.

    Args:
        patches: all of an image, row by row.
        height: of the images, in pixels.
        width: of the images, in pixels.
        size: pixels on each side of a patch.

    Raises:
        ValueError: if such images do not divide into patches, or into another
            number of patches, or if a patch has no whole number of channels.
    """
    require_division(height, width, size)
    batch, number, values = patches.shape
    rows, columns = height // size, width // size
    if number != rows * columns:
        raise ValueError(
            f"images of {height} by {width} pixels have {rows * columns} "
            f"patches of {size} by {size}, not {number}"
        )
    if values % size**2:
        raise ValueError(
            f"a patch of {size} by {size} pixels has a multiple of {size**2} "
            f"values, not {values}"
        )
    cells = patches.reshape(batch, rows, columns, -1, size, size)
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(batch, -1, height, width)


def require_division(height: int, width: int, size: int) -> None:
    """Refuse a size of patches that does not divide height and width.

    Raises:
        ValueError: if it does not.
    """
    if size < 1 or height % size or width % size:
        raise ValueError(
            f"images of {height} by {width} pixels do not divide into patches "
            f"of {size} by {size}"
        )
