"""Exercise: design pictures that show what an attention map follows.

Source: the explanations that are told apart are those of the chapter's section
    on spatial attention
Axes: H and W rows and columns of pixels; a map has a weight for each patch of
    4 by 4 pixels
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases
from attnbook.models.patches import cut_patches

KINDS = (
    "follows the object",
    "follows brightness",
    "follows edges",
    "stays at the center",
    "stays at one patch",
)
PATCH, LARGEST = 4, 80


@dataclass(frozen=True)
class AttentionMap:
    """An attention map over the patches of a picture, of one of five kinds.

    Called with a picture (H, W) of values from 0 to 1, it returns the weight of
    each patch (H / 4, W / 4); the weights sum to 1.

    Attributes:
        kind: one of `KINDS`.
        place: row and column of the patch at which a map of kind 4 stays.
        sharpness: of the softmax.
    """

    kind: str
    place: tuple[int, int]
    sharpness: float

    def __call__(self, picture: Float[Tensor, "H W"]) -> Float[Tensor, "R K"]:
        """Return the weights.

        Raises:
            ValueError: if the picture does not divide into patches, is too
                large, or has values beyond 0 and 1.
        """
        picture = torch.as_tensor(picture, dtype=torch.float32)
        height, width = picture.shape
        if max(height, width) > LARGEST or min(height, width) < 3 * PATCH:
            raise ValueError(
                f"a picture has 12 to {LARGEST} rows and columns, but this one "
                f"has {height} and {width}"
            )
        low, high = float(picture.min()), float(picture.max())
        if low < 0 or high > 1:
            raise ValueError(
                f"a picture has values from 0 to 1, but this one has values "
                f"from {low:.3g} to {high:.3g}"
            )
        rows, columns = height // PATCH, width // PATCH
        number = KINDS.index(self.kind)
        if number < 3:
            feature = (mark_object, torch.clone, draw_edges)[number](picture)
            cut = cut_patches(feature[None, None], PATCH)
            scores = cut[0].mean(-1).reshape(rows, columns)
        else:
            middle = (rows - 1) / 2, (columns - 1) / 2
            place = middle if number == 3 else self.place
            scores = -measure_distances(rows, columns, *place) / 4
        weights = (self.sharpness * scores).flatten().softmax(0)
        return weights.reshape(rows, columns)


def mark_object(picture: Float[Tensor, "H W"]) -> Float[Tensor, "H W"]:
    """Return 1 where a picture differs from its median, the background."""
    return ((picture - picture.median()).abs() > 0.1).to(picture.dtype)


def draw_edges(picture: Float[Tensor, "H W"]) -> Float[Tensor, "H W"]:
    """Return how much each pixel differs from the next in row and column."""
    down = (picture[1:] - picture[:-1]).abs()
    right = (picture[:, 1:] - picture[:, :-1]).abs()
    edges = torch.zeros_like(picture)
    edges[:-1] += down
    edges[:, :-1] += right
    return edges


def measure_distances(
    rows: int, columns: int, row: int | float, column: int | float
) -> Float[Tensor, "R K"]:
    """Return the distance of each patch from a place."""
    down, right = torch.arange(rows) - row, torch.arange(columns) - column
    return (down[:, None] ** 2 + right**2).sqrt()


def map_kind(attend: Callable, picture: Float[Tensor, "H W"]) -> int:
    """Return what an attention map follows: 0 to 4.

    0: the object, the pixels that differ by more than 0.1 from the picture's
    median. 1: brightness. 2: edges, where neighboring pixels differ. 3:
    nothing; the map stays at the center of the picture. 4: nothing; the map
    stays at a fixed patch in one of the first three rows and columns of
    patches.

    Args:
        attend: from a picture (H, W) with values from 0 to 1 to the weights of
            its patches of 4 by 4 pixels (H / 4, W / 4). H and W are multiples
            of 4 from 12 to 80.
        picture: an example.
    """
    # A dark square of 3 by 3 patches on a bright canvas, far from the center
    # and from the first rows and columns of patches.
    canvas = torch.ones(36, 44)
    canvas[20:32, 28:40] = 0.0
    weights = attend(canvas)  # (9, 11)
    largest = weights > 0.9 * weights.max()
    # The middle of the square, the background, a corner of the square, and the
    # center of the canvas
    places = {0: (6, 8), 1: (8, 2), 2: (7, 9), 3: (4, 5)}
    return next((kind for kind, at in places.items() if largest[at]), 4)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each kind, given a bright object at the center, in any order."""

    def case(number: int, place: tuple[int, int]) -> Case:
        sharpness = 8 + 8 * float(torch.rand((), generator=rng))
        rows, columns = (3 + 2 * x for x in draw_integers(rng, 0, 1, 2).tolist())
        picture = torch.zeros(4 * rows, 4 * columns)
        top, left = 2 * rows - 3, 2 * columns - 3
        picture[top : top + 6, left : left + 6] = 1.0
        made = AttentionMap(KINDS[number], place, sharpness)
        at = f" in row {place[0]}, column {place[1]}" if number == 4 else ""
        return Case(f"with a map that {KINDS[number]}{at}", (made, picture))

    places = draw_integers(rng, 0, 2, 2, 2).tolist()
    fixed = [(1, 1), (2, 2), *map(tuple, places)]
    cases = [case(number, (1, 1)) for number in 2 * (0, 1, 2, 3)]
    return shuffle_cases((*cases, *(case(4, x) for x in fixed)), rng)


def paint(
    height: int, width: int, top: int, left: int, side: int, bright: bool
) -> Tensor:
    """Return a picture with a square, bright on dark or dark on bright."""
    picture = torch.full((height, width), 1.0 - bright)
    picture[top : top + side, left : left + side] = float(bright)
    return picture


def make_design(
    *pictures: Tensor, order: Sequence[int] = (0, 1, 2, 3, 4)
) -> Callable[[Callable, Tensor], int]:
    """Return a design with other pictures.

    Args:
        *pictures: on which the map is compared with a map of each kind; without
            any, the example.
        order: in which the kinds are tried; the first that fits is the answer.
    """
    places = [(row, column) for row in range(3) for column in range(3)]

    def find_largest(attend: Callable, picture: Tensor) -> Tensor:
        weights = attend(picture)
        return weights > 0.9 * weights.max()

    def answer(attend: Callable, picture: Tensor) -> int:
        for kind in order:
            for place in places if kind == 4 else places[:1]:
                known = AttentionMap(KINDS[kind], place, 12.0)
                if all(
                    torch.equal(find_largest(attend, x), find_largest(known, x))
                    for x in pictures or (picture,)
                ):
                    return kind
        return 4

    return answer


check_map_kind = Exercise(
    title="a picture that shows what an attention map follows",
    stars=3,
    minutes=20,
    section="Spatial attention: where is the digit?",
    solution=map_kind,
    returns=("kind",),
    draw=draw,
    key_line="canvas[20:32, 28:40] = 0.0",
    mistakes=(
        Mistake(
            "example-only",
            "only the example tried",
            "it tries only the given picture. Its object is bright and at the "
            "center, so that several kinds of maps have their largest weight "
            "there; paint a picture of your own",
            make_design(),
        ),
        Mistake(
            "bright-object",
            "bright object on a dark canvas",
            "its objects are brighter than the canvas. A map that follows "
            "brightness is then the same as one that follows the object; paint "
            "a dark object",
            make_design(paint(36, 44, 20, 28, 12, True)),
        ),
        Mistake(
            "object-at-the-center",
            "object at the center",
            "its object is at the center of the picture, where a map of kind 3 "
            "always has its largest weight; move the object",
            make_design(paint(36, 44, 15, 19, 6, False)),
        ),
        Mistake(
            "object-without-inside",
            "object without an inside",
            "its object is so small that each of its patches contains edges; "
            "paint one that fills whole patches",
            make_design(paint(36, 44, 26, 34, 1, False)),
        ),
        Mistake(
            "small-canvas",
            "center and fixed patch at one place",
            "its canvas is so small that a fixed patch can be the one at the "
            "center; make the canvas larger than five rows and columns of "
            "patches",
            make_design(paint(12, 12, 0, 0, 6, False), order=(0, 1, 2, 3)),
        ),
        Mistake(
            "object-at-a-fixed-patch",
            "object among the first patches",
            "its object lies where the fixed patch of a map of kind 4 can be, "
            "in the first three rows and columns of patches",
            make_design(paint(36, 44, 3, 3, 6, False)),
        ),
        Mistake(
            "blank",
            "empty picture",
            "its picture is empty. All maps that follow what is in the picture "
            "are then uniform",
            make_design(torch.ones(36, 44)),
        ),
        Mistake(
            "object-and-edges-swapped",
            "object and edges confused",
            "it confuses kinds 0 and 2: inside a filled object there are no edges",
            renumber(map_kind, {0: 2, 2: 0}),
        ),
        Mistake(
            "center-and-patch-swapped",
            "center and fixed patch confused",
            "it confuses kinds 3 and 4: the center moves with the size of the picture",
            renumber(map_kind, {3: 4, 4: 3}),
        ),
        Mistake(
            "counted-from-one",
            "kinds counted from 1",
            "its numbers are one too high: the first kind is 0",
            lambda attend, picture: map_kind(attend, picture) + 1,
        ),
        Mistake(
            "always-object",
            "map not computed",
            "it returns 0 without computing a map",
            lambda attend, picture: 0,
        ),
    ),
)
