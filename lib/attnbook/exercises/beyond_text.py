"""The exercises of the chapter on attention beyond text.

Source: patches: Dosovitskiy et al. (2021), section 3.1,
    https://arxiv.org/abs/2010.11929; graphs: Veličković et al. (2018), section 2.1,
    equations 1 to 4, https://arxiv.org/abs/1710.10903; joint and factorized attention:
    Arnab et al. (2021), section 3, https://arxiv.org/abs/2103.15691; divided attention:
    Bertasius, Wang and Torresani (2021), section 3, https://arxiv.org/abs/2102.05095
Axes: B batch, C channels, H and W rows and columns of pixels; N nodes, E edges, I width
    of the features, F width of the output; a map has a weight for each patch of 4 by 4
    pixels
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnbook.attention.graph import (
    attend_graph,
    average_neighbors,
    score_static,
    softmax_by_target,
)
from attnbook.exercises.declare import Case, Exercise
from attnbook.models.vision import cut_patches, require_division


def patch_cases(draw):
    yield "with one patch", draw.normal(1, 1, 2, 2), 2
    yield "with two patches side by side", draw.normal(1, 1, 2, 4), 2
    yield "with two patches, one below the other", draw.normal(1, 1, 4, 2), 2
    yield "with three channels", draw.normal(1, 3, 2, 4), 2
    yield "with patches of one pixel", draw.normal(1, 3, 2, 4), 1
    yield "with as many patches as values", draw.normal(1, 1, 6, 6), 3
    yield "with several images", draw.normal(2, 3, 6, 9), 3
    yield "with large images", draw.normal(2, 3, 35, 45), 5


check_patches = Exercise(
    cut_patches,
    patch_cases,
    stars=1,
    minutes=10,
    section="Images: patches and a Vision Transformer",
    title="patches of an image",
    returns=("patches",),
    helpers=(require_division,),
    mistakes={
        "columns-first": (
            "the patches are listed column by column; it should be row by row",
            "(0, 2, 4, 1, 3, 5) → (0, 4, 2, 1, 3, 5)",
        ),
        "channel-last": (
            "a patch is flattened as row, column, channel; the channel is first",
            "(0, 2, 4, 1, 3, 5) → (0, 2, 4, 3, 5, 1)",
        ),
        "only-reshaped": (
            "the image is only reshaped, so each patch has pieces of rows",
            "cells.permute(0, 2, 4, 1, 3, 5) → cells",
        ),
        "height-and-width-swapped": (
            "height and width are swapped: the width is the last axis",
            "height // size, width // size → width // size, height // size",
        ),
        "not-transposed": (
            "the axes of patches and of values are swapped, as by `unfold`",
            lambda images, size: cut_patches(images, size).mT,
        ),
    },
    hints=(
        "Split height and width into patches and pixels. Which number the patches?",
        "Reshape to (B, C, rows, size, columns, size), then move axes.",
    ),
)


def graph_cases(draw):
    def case(tries: str, edges: list | Tensor, nodes: int, wide=3, narrow=2) -> Case:
        edges = torch.as_tensor(edges, dtype=torch.long)
        # Where a node has no edge, the gradient of a right answer can be NaN.
        reached = len(edges[1].unique()) == nodes
        features, weight = draw.normal(nodes, wide), draw.normal(narrow, wide)
        inputs = features, edges, weight, draw.normal(2, narrow)
        return Case(tries, inputs, gradient=reached)

    several = draw.integers(0, 5, 2, 14)
    several[:, 7] = several[:, 6]
    ring = torch.arange(5).repeat(2)
    ring = torch.stack([ring, (ring + torch.arange(10) // 5 + 1) % 5])
    yield case("with one edge", [[0], [1]], 2)
    yield case("with two edges into one node", [[0, 1], [2, 2]], 3)
    yield case("with an edge of a node to itself", [[0, 1, 1], [1, 1, 2]], 3)
    yield case("with two edges into every node", ring, 5)
    yield case("with 14 edges, one of them repeated", several, 7)
    yield case("with fewer edges than nodes", draw.integers(0, 6, 2, 4), 7, 2, 5)
    yield case("with all sizes equal", draw.integers(0, 1, 2, 2), 2, 2, 2)
    yield case("with many edges", draw.integers(0, 24, 2, 90), 25, 7, 11)
    features, edges, weight, a = case("with large scores", several, 7).inputs
    source, target = (features @ weight.T)[edges]
    scores = source @ a[0] + target @ a[1]
    a = a * (120 / scores[scores.abs().argmax()])
    yield Case("with large scores", (features, edges, weight, a), gradient=False)
    yield case("without edges", torch.zeros(2, 0), 3)
    # All scores are 0.2 · -2^42; numbers that stand for -inf, such as -1e9, are above.
    features = torch.cat([torch.ones(6, 1), draw.normal(6, 2)], 1)
    path = torch.tensor([draw.shuffle(range(6))[:4], [1, 2, 4, 5]])
    low = -(2.0**41) * torch.eye(1, 3).expand(2, 3)
    inputs = features, path, torch.eye(3), low
    yield Case("with all scores below -1e11", inputs, gradient=False)


def mask_after_softmax(h, edges, weight, a):
    """Return graph attention whose softmax runs over all targets of a source."""
    values = h @ weight.T
    counts = values.new_zeros(len(h), len(h))
    counts.index_put_((edges[1], edges[0]), counts.new_ones(()), accumulate=True)
    scores = F.leaky_relu((values @ a[1])[:, None] + values @ a[0], 0.2)
    return (scores.softmax(0) * counts) @ values


check_graph_attention = Exercise(
    attend_graph,
    graph_cases,
    stars=2,
    minutes=20,
    section="Graphs: attention over neighbors",
    title="attention over neighbors",
    returns=("output",),
    helpers=(score_static, softmax_by_target, average_neighbors),
    mistakes={
        "softmax-over-sources": (
            "the softmax runs over the edges out of a source, not into a target",
            ["edges[1], len(h) → edges[0], len(h)", mask_after_softmax],
        ),
        "softmax-over-all-edges": (
            "one softmax runs over all edges; each target has its own",
            "softmax_by_target(scores, edges[1], len(h)) → scores.softmax(-1)",
        ),
        "edges-reversed": (
            "the edges are reversed: their first row has the sources",
            "check_edges(edges, len(features)) → edges = edges.flip(0)",
        ),
        "slope": (
            "LeakyReLU has PyTorch's slope of 0.01; it should be 0.2",
            "score_static(projected, edges, a) → "
            "F.leaky_relu((projected[edges] @ a.mT).diagonal(0, 0, 2).sum(1))",
        ),
        "self-loops": (
            "every node also attends to itself; only edges should count",
            lambda h, edges, *rest: attend_graph(
                h, torch.cat([edges, torch.arange(len(h)).expand(2, -1)], 1), *rest
            ),
        ),
        "repeated-edges": (
            "an edge that occurs twice is counted once; each should count",
            "check_edges(edges, len(features)) → edges = edges.unique(dim=1)",
        ),
    },
    hints=(
        "Compute one score for each edge. Over which edges do the weights sum to 1?",
        "Sum the exponentials and the weighted W h by target, with `index_add`.",
    ),
)


def space_time_counts(frames: int, height: int, width: int, size: int) -> list[int]:
    """Return tokens and scores of attention to a clip, and pairs that depend."""
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


def space_time_cases(draw):
    size = draw.whole
    yield "with 3 frames of 2 by 2 patches", 3, 8, 8, 4
    yield from draw.shuffle(
        (
            ("with many frames", size(20, 40), 12, 12, 4),
            ("with many patches", size(2, 4), 64, 64, 8),
            ("with wide frames", size(4, 7), 8, 8 * size(3, 5), 4),
            ("with patches of one pixel", size(2, 4), 5, 7, 1),
            ("with a single frame", 1, 16, 8 * size(1, 3), 4),
            ("with a single patch per frame", size(5, 9), 16, 16, 16),
        )
    )


check_space_time_counts = Exercise(
    space_time_counts,
    space_time_cases,
    stars=2,
    minutes=15,
    section="Joint and factorized attention over space and time",
    title="scores of attention in space and time",
    returns=("counts",),
    mistakes={
        "pixels-as-tokens": (
            "every pixel is counted as a token; each patch is one token",
            "(height // size) * (width // size) → height * width",
        ),
        "joint-within-frames": (
            "joint attention is counted within frames; it spans all of them",
            "joint = tokens**2 → joint = frames * patches**2",
        ),
        "time-once": (
            "temporal attention is counted for one patch of a frame, not for all",
            "time = patches * frames**2 → time = frames**2",
        ),
        "own-frame-missing": (
            "a causal query should attend to its own frame as well",
            "(frames + 1) → (frames - 1)",
        ),
        "one-step-reach": (
            "the last count is of scores, not of inputs that both steps mix",
            "causal, reached] → causal, causal]",
        ),
    },
    hints=("How many keys does one token have in each step?",),
)


KINDS = (
    "follows the object",
    "follows brightness",
    "follows edges",
    "stays at the center",
    "stays at one patch",
)
PATCH = 4


class AttentionMap:
    """An attention map over the patches of a picture, of one of `KINDS`.

    Called with a picture (H, W) of values from 0 to 1, it returns the weight of each
    patch (H / 4, W / 4); the weights sum to 1. A map of kind 4 stays at a place.
    """

    def __init__(self, kind: int, place: tuple[int, int], sharpness: float):
        self._kind, self.place, self.sharpness = kind, place, sharpness

    def __call__(self, picture: Tensor) -> Tensor:
        """Return the weights, or refuse a picture of other sizes or values."""
        picture = torch.as_tensor(picture, dtype=torch.float32)
        height, width = picture.shape
        require_division(height, width, PATCH)
        low, high = float(picture.min()), float(picture.max())
        if low < 0 or high > 1:
            raise ValueError(f"values go from 0 to 1, not from {low:.3g} to {high:.3g}")
        rows, columns = height // PATCH, width // PATCH
        if self._kind < 3:
            feature = (mark_object, torch.clone, draw_edges)[self._kind](picture)
            scores = F.avg_pool2d(feature[None], PATCH)[0]
        else:
            middle = (rows - 1) / 2, (columns - 1) / 2
            row, column = middle if self._kind == 3 else self.place
            down, right = torch.arange(rows) - row, torch.arange(columns) - column
            scores = -(down[:, None] ** 2 + right**2).sqrt() / 4
        return (self.sharpness * scores).flatten().softmax(0).view(rows, columns)


def mark_object(picture: Tensor) -> Tensor:
    """Return 1 where a picture differs from its median, the background."""
    return ((picture - picture.median()).abs() > 0.1).to(picture.dtype)


def draw_edges(picture: Tensor) -> Tensor:
    """Return how much each pixel differs from the next in row and column."""
    edges = torch.zeros_like(picture)
    edges[:-1] += picture.diff(dim=0).abs()
    edges[:, :-1] += picture.diff(dim=1).abs()
    return edges


def map_kind(attend: Callable, picture: Float[Tensor, "H W"]) -> int:
    """Return what an attention map follows: 0 to 4."""
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


def map_cases(draw):
    def case(kind: int, place: tuple[int, int]) -> Case:
        attend = AttentionMap(kind, place, 0.1 * draw.whole(80, 160))
        rows, columns = 3 + 2 * draw.whole(0, 1), 3 + 2 * draw.whole(0, 1)
        picture = torch.zeros(4 * rows, 4 * columns)
        top, left = 2 * rows - 3, 2 * columns - 3
        picture[top : top + 6, left : left + 6] = 1.0
        tries = f"with a map that {KINDS[kind]}"
        return Case(tries, (attend, picture), gradient=False)

    places = [(1, 1), (2, 2), *((draw.whole(0, 2), draw.whole(0, 2)) for _ in "12")]
    cases = [case(kind, (1, 1)) for kind in 2 * (0, 1, 2, 3)]
    yield from draw.shuffle([*cases, *(case(4, place) for place in places)])


check_map_kind = Exercise(
    map_kind,
    map_cases,
    stars=3,
    minutes=20,
    section="Spatial attention: where is the digit?",
    title="a picture that shows what an attention map follows",
    returns=("kind",),
    mistakes={
        "bright-object": (
            "its object is bright, so brightness and object agree; paint a dark one",
            "torch.ones(36, 44) → torch.zeros(36, 44) ; = 0.0 → = 1.0",
        ),
        "object-at-the-center": (
            "its object is at the center, where one kind always stays",
            "20:32, 28:40 → 12:24, 16:28 ; "
            "0: (6, 8) → 0: (4, 5) ; "
            "2: (7, 9) → 2: (5, 6)",
        ),
        "object-and-edges-swapped": (
            "it confuses object and edges: a filled object has none inside",
            "0: (6, 8), 1: (8, 2), 2: (7, 9) → 2: (6, 8), 1: (8, 2), 0: (7, 9)",
        ),
    },
    hints=(
        "Where on the picture are object, brightness, edges and center?",
        "Paint a large dark square on a bright canvas, far from center and corner.",
    ),
)
