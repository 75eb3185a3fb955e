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

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnbook.attention.graph import (
    attend_graph,
    average_neighbors,
    check_edges,
    score_static,
    softmax_by_target,
)
from attnbook.exercises.declare import Case, Exercise, differ
from attnbook.models.patches import cut_patches, require_division


def patch_cases(draw):
    yield "with one patch", draw.normal(1, 1, 2, 2), 2
    yield "with two patches side by side", draw.normal(1, 1, 2, 4), 2
    yield "with two patches, one below the other", draw.normal(1, 1, 4, 2), 2
    yield "with three channels", draw.normal(1, 3, 2, 4), 2
    yield "with patches of one pixel", draw.normal(1, 3, 2, 4), 1
    yield "with all sizes equal", draw.normal(2, 2, 4, 4), 2
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
            "each patch is flattened as row, column, channel; it should be channel, "
            "row, column",
            "(0, 2, 4, 1, 3, 5) → (0, 2, 4, 3, 5, 1)",
        ),
        "pixels-transposed": (
            "the pixels of each patch are listed column by column; it should be row by "
            "row",
            "(0, 2, 4, 1, 3, 5) → (0, 2, 4, 1, 5, 3)",
        ),
        "only-reshaped": (
            "the image is only reshaped, so each patch contains pieces of rows; move "
            "the axes of the grid before those of the pixels",
            "cells.permute(0, 2, 4, 1, 3, 5) → cells",
        ),
        "channels-apart": (
            "the patches of one channel follow those of another; each patch should "
            "contain all channels",
            "(0, 2, 4, 1, 3, 5) → (0, 1, 2, 4, 3, 5)",
        ),
        "height-and-width-swapped": (
            "the numbers of rows and columns of patches are swapped: the height is the "
            "third axis, and the width is the last",
            "height // size, width // size → width // size, height // size",
        ),
        "not-transposed": (
            "the axes of patches and of values are swapped, as "
            "`torch.nn.functional.unfold` returns them",
            lambda images, size: cut_patches(images, size).mT,
        ),
    },
    hints=(
        "Split the height into rows of patches and pixels, and the width likewise. "
        "Which of these axes number the patches?",
        "Reshape to (B, C, rows, size, columns, size), move rows and columns before "
        "the channels, and reshape again.",
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
    yield case("with two edges out of one", [[0, 0, 1], [1, 2, 2]], 3)
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


def attend_in_matrix(h, edges, weight, a, axis=-1, later=False, clean=True):
    """Return graph attention of a matrix of scores (targets, sources).

    Args:
        h: the features.
        edges: as `attend_graph`, like weight and a.
        weight: W.
        a: of the scores.
        axis: of the softmax.
        later: whether nodes without an edge are masked only after the softmax.
        clean: whether NaN becomes 0.
    """
    values = h @ weight.T
    counts = values.new_zeros(len(h), len(h))
    counts.index_put_((edges[1], edges[0]), counts.new_ones(()), accumulate=True)
    scores = F.leaky_relu((values @ a[1])[:, None] + values @ a[0], 0.2)
    if later:
        return (scores.softmax(axis) * counts) @ values
    weights = (scores + counts.log()).softmax(axis)
    return (weights.nan_to_num() if clean else weights) @ values


def divide_powers(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
    """Return the softmax without subtracting the largest score."""
    powers = scores.exp()
    total = powers.new_zeros(nodes).index_add(0, target, powers)
    return powers / total[target]


def attend_with(score=score_static, normalize=softmax_by_target):
    """Return graph attention with another score or softmax."""

    def attend(h, edges, weight, a):
        values = h @ weight.T
        weights = normalize(score(values, edges, a), edges[1], len(h))
        return average_neighbors(values, edges, weights)

    return attend


def score_with(bend: Callable) -> Callable:
    """Return a score with another nonlinearity."""
    return lambda values, edges, a: bend(
        (values[edges] @ a.mT).diagonal(0, 0, 2).sum(1)
    )


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
            "the softmax runs over the edges that leave a source; it should run over "
            "the edges into a target, whose weights sum to 1",
            [
                "edges[1], len(h) → edges[0], len(h)",
                lambda *x: attend_in_matrix(*x, axis=0),
                lambda *x: attend_in_matrix(*x, axis=0, clean=False),
                lambda *x: attend_in_matrix(*x, axis=0, later=True),
            ],
        ),
        "softmax-over-all-edges": (
            "one softmax runs over all edges of the graph; each target should have its "
            "own",
            attend_with(normalize=lambda scores, target, nodes: scores.softmax(-1)),
        ),
        "edges-reversed": (
            "the edges are reversed: the first row of `edges` contains the sources, "
            "and outputs belong to the targets in the second row",
            lambda h, edges, weight, a: attend_graph(h, edges.flip(0), weight, a),
        ),
        "no-leaky-relu": (
            "LeakyReLU is missing. Without it, the target's part of the score is the "
            "same for all of its edges and has no effect",
            attend_with(score_with(lambda scores: scores)),
        ),
        "slope": (
            "LeakyReLU has a slope of 0.01 below zero, PyTorch's default; it should be "
            "0.2",
            attend_with(score_with(F.leaky_relu)),
        ),
        "self-loops": (
            "every node also attends to itself; it should do so only if `edges` "
            "contains an edge from the node to itself",
            lambda h, edges, weight, a: attend_graph(
                h,
                torch.cat([edges, torch.arange(len(h)).expand(2, -1)], 1),
                weight,
                a,
            ),
        ),
        "repeated-edges": (
            "an edge that occurs twice is counted once, as in an adjacency matrix of "
            "zeros and ones; each occurrence should count",
            lambda h, edges, weight, a: attend_graph(h, edges.unique(dim=1), weight, a),
        ),
        "overflow": (
            "the exponentials of large scores overflow; subtract the largest score of "
            "each target first, which does not change the weights",
            attend_with(normalize=divide_powers),
        ),
    },
    hints=(
        "Compute one score for each edge. Over which edges do the weights sum to 1?",
        "Subtract each target's largest score, sum the exponentials with `index_add` "
        "by target, divide, and sum the sources' W h times the weights likewise.",
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
            ("with as many frames as patches", 6, 8, 12, 4),
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
            lambda frames, height, width, size: space_time_counts(
                frames, height, width, 1
            ),
        ),
        "joint-within-frames": (
            "joint attention is counted within each frame; every token attends to the "
            "tokens of all frames",
            "joint = tokens**2 → joint = frames * patches**2",
        ),
        "multiplied": (
            "the scores of the two steps are multiplied; one step follows the other, "
            "so their scores add up",
            "space + time, → space * time,",
        ),
        "time-once": (
            "temporal attention is counted for one place; each patch of a frame has "
            "its own scores",
            "time = patches * frames**2 → time = frames**2",
        ),
        "own-frame-missing": (
            "a causal query does not attend to its own frame; it should attend to the "
            "same and to earlier frames",
            "(frames + 1) → (frames - 1)",
        ),
        "space-causal": (
            "spatial attention is made causal as well; only temporal attention should "
            "be",
            "causal = space → causal = frames * (patches * (patches + 1) // 2)",
        ),
        "one-step-reach": (
            "the last count is that of the scores. An output depends on all patches of "
            "each frame that it attends to, because spatial attention has mixed them "
            "before",
            "causal, reached] → causal, causal]",
        ),
    },
    hints=(
        "How many keys does one token have in each step?",
        "With N patches a frame and T frames: space has T · N² scores, and causal time "
        "has N · T (T + 1) / 2.",
    ),
)


FAULTS = (
    "no fault",
    "a softmax over the edges out of a source",
    "a softmax over all edges",
    "edges that are reversed",
    "an edge from every node to itself",
    "equal weights",
    "own features without incoming edges",
)


class GraphLayer:
    """Graph attention, with one of `FAULTS`.

    Called with features (N, I) and edges (2, E), it returns (N, F): for each node the
    mean of W h of the sources of its incoming edges, weighted by a softmax over these
    edges; zeros without incoming edges.
    """

    def __init__(self, fault: int, weight: Tensor, a: Tensor):
        self._fault, self.weight, self.a = fault, weight, a

    def __call__(self, features: Tensor, edges: Tensor) -> Tensor:
        """Attend to the neighbors, as far as the fault allows.

        Raises:
            ValueError: if an edge names a node that is not there.
        """
        nodes = len(features)
        check_edges(edges, nodes)
        if self._fault == 3:
            edges = edges.flip(0)
        elif self._fault == 4:
            edges = torch.cat([edges, torch.arange(nodes).expand(2, -1)], 1)
        projected = features @ self.weight.T
        scores = score_static(projected, edges, self.a)
        if self._fault == 5:
            scores = torch.zeros_like(scores)
        groups = {1: edges[0], 2: torch.zeros_like(edges[0])}
        groups = groups.get(self._fault, edges[1])
        weights = softmax_by_target(scores, groups, nodes)
        output = average_neighbors(projected, edges, weights)
        if self._fault == 6:
            reached = torch.isin(torch.arange(nodes), edges[1])
            output = torch.where(reached[:, None], output, projected)
        return output


def graph_fault(
    layer: Callable, features: Float[Tensor, "N I"], edges: Int[Tensor, "2 E"]
) -> int:
    """Return the number of the fault of graph attention, 0 if there is none."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4, features.shape[1], generator=rng)

    def run(*pairs: tuple[int, int]) -> Tensor:
        made = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
        return layer(x, made.T)

    alone, one = run(), run((0, 2))
    if alone.any():  # W h of each node
        return 4 if differ(one[2], alone[0]) else 6
    if not one[2].any():
        return 3
    if differ(run((0, 2), (1, 3))[2], one[2]):
        return 2
    total = one[2] + run((1, 2))[2] + run((3, 2))[2]
    together = run((0, 2), (1, 2), (3, 2))[2]
    if not differ(together, total):
        return 1
    return 0 if differ(3 * together, total) else 5


def graph_fault_cases(draw):
    """Two faults given one edge, the others a ring."""

    def case(fault: int, nodes: int, wide: int) -> Case:
        # No weight of an edge is close to 0 or 1.
        layer = GraphLayer(
            fault, draw.normal(3, wide) / wide**0.5, draw.normal(2, 3) / 2
        )
        source = torch.arange(nodes if nodes > 2 else 1)
        edges = torch.stack([source, (source + 1) % nodes])
        given = "one edge" if nodes == 2 else f"a ring of {nodes} nodes"
        tries = f"with {FAULTS[fault]}, given {given}"
        return Case(tries, (layer, draw.normal(nodes, wide), edges), gradient=False)

    few = [case(fault, 2, 4) for fault in (0, 4)]
    yield from draw.shuffle(
        [*few, *(case(fault, 5, 3) for fault in (0, 1, 2, 3, 5, 6))]
    )


def find_fault_of_example(layer: Callable, features: Tensor, edges: Tensor) -> int:
    """Return a fault from which nodes of the example have an output."""
    reached = layer(features, edges).any(-1)
    if torch.equal(reached, torch.isin(torch.arange(len(reached)), edges[1])):
        return 0
    return 4 if reached.all() else 3


check_graph_fault = Exercise(
    graph_fault,
    graph_fault_cases,
    stars=3,
    minutes=25,
    section="Graphs: attention over neighbors",
    title="the fault of graph attention",
    returns=("fault",),
    mistakes={
        "example-only": (
            "it tries only the given example. Where each node has at most one incoming "
            "and one outgoing edge, a softmax over the wrong edges and equal weights "
            "change nothing. Make a graph of your own",
            find_fault_of_example,
        ),
        "one-incoming-edge": (
            "it tries only nodes with one incoming edge, whose weight is 1 whatever "
            "the scores are. Let two edges lead to one node",
            lambda *x: {1: 0, 5: 0}.get(found := graph_fault(*x), found),
        ),
        "one-target": (
            "it does not notice a softmax over all edges. As long as all edges lead to "
            "one node, this softmax is the right one; let edges lead to two nodes",
            "if differ(run((0, 2), (1, 3))[2], one[2]) → if False",
        ),
        "equal-weights-not-tested": (
            "it does not notice equal weights: compare the output of several edges "
            "with the mean of the outputs of each",
            "0 if differ(3 * together, total) else 5 → 0",
        ),
        "no-empty-graph": (
            "it does not look at nodes without incoming edges. Their output should be "
            "zeros",
            lambda *x: {4: 0, 6: 0}.get(found := graph_fault(*x), found),
        ),
        "own-features-as-loops": (
            "it takes every output of a node without incoming edges for an edge of the "
            "node to itself. Such an edge also changes the output of a node with an "
            "incoming edge",
            "4 if differ(one[2], alone[0]) else 6 → 4",
        ),
        "always-right": ("it never finds a fault", lambda *x: 0),
    },
    hints=(
        "What do nodes without incoming edges return? What does one edge return?",
        "Compare three edges into one node with the sum and the mean of what each of "
        "them returns alone, and add an edge between two other nodes.",
    ),
)


KINDS = (
    "follows the object",
    "follows brightness",
    "follows edges",
    "stays at the center",
    "stays at one patch",
)
PATCH, LARGEST = 4, 80


class AttentionMap:
    """An attention map over the patches of a picture, of one of `KINDS`.

    Called with a picture (H, W) of values from 0 to 1, it returns the weight of each
    patch (H / 4, W / 4); the weights sum to 1.

    Attributes:
        place: row and column of the patch at which a map of kind 4 stays.
        sharpness: of the softmax.
    """

    def __init__(self, kind: int, place: tuple[int, int], sharpness: float):
        self._kind, self.place, self.sharpness = kind, place, sharpness

    def __call__(self, picture: Tensor) -> Tensor:
        """Return the weights.

        Raises:
            ValueError: if the picture does not divide into patches, is too large, or
                has values beyond 0 and 1.
        """
        picture = torch.as_tensor(picture, dtype=torch.float32)
        height, width = picture.shape
        require_division(height, width, PATCH)
        if max(height, width) > LARGEST or min(height, width) < 3 * PATCH:
            raise ValueError(
                f"a picture has 12 to {LARGEST} rows and columns, but this one has "
                f"{height} and {width}"
            )
        low, high = float(picture.min()), float(picture.max())
        if low < 0 or high > 1:
            raise ValueError(
                f"a picture has values from 0 to 1, but this one has values from "
                f"{low:.3g} to {high:.3g}"
            )
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
    """Each kind, given a bright object at the center, in any order."""

    def case(kind: int, place: tuple[int, int]) -> Case:
        attend = AttentionMap(kind, place, 0.1 * draw.whole(80, 160))
        rows, columns = 3 + 2 * draw.whole(0, 1), 3 + 2 * draw.whole(0, 1)
        picture = torch.zeros(4 * rows, 4 * columns)
        top, left = 2 * rows - 3, 2 * columns - 3
        picture[top : top + 6, left : left + 6] = 1.0
        at = f" in row {place[0]}, column {place[1]}" if kind == 4 else ""
        tries = f"with a map that {KINDS[kind]}{at}"
        return Case(tries, (attend, picture), gradient=False)

    places = [(1, 1), (2, 2), *((draw.whole(0, 2), draw.whole(0, 2)) for _ in "12")]
    cases = [case(kind, (1, 1)) for kind in 2 * (0, 1, 2, 3)]
    yield from draw.shuffle([*cases, *(case(4, place) for place in places)])


def paint(height: int, width: int, top: int, left: int, side: int) -> Tensor:
    """Return a bright picture with a dark square."""
    picture = torch.ones(height, width)
    picture[top : top + side, left : left + side] = 0.0
    return picture


def make_design(
    painted: Tensor | None = None, order: Sequence[int] = (0, 1, 2, 3, 4)
) -> Callable[[Callable, Tensor], int]:
    """Return a design with another picture.

    Args:
        painted: on which the map is compared with a map of each kind; unless given,
            the example.
        order: in which the kinds are tried; the first that fits is the answer.
    """

    def answer(attend: Callable, picture: Tensor) -> int:
        used = picture if painted is None else painted

        def find_largest(weigh: Callable) -> Tensor:
            weights = weigh(used)
            return weights > 0.9 * weights.max()

        found = find_largest(attend)
        for kind in order:
            for place in range(9 if kind == 4 else 1):
                known = AttentionMap(kind, divmod(place, 3), 12.0)
                if torch.equal(found, find_largest(known)):
                    return kind
        return 4

    return answer


check_map_kind = Exercise(
    map_kind,
    map_cases,
    stars=3,
    minutes=20,
    section="Spatial attention: where is the digit?",
    title="a picture that shows what an attention map follows",
    returns=("kind",),
    mistakes={
        "example-only": (
            "it tries only the given picture. Its object is bright and at the center, "
            "so that several kinds of maps have their largest weight there; paint a "
            "picture of your own",
            make_design(),
        ),
        "bright-object": (
            "its objects are brighter than the canvas. A map that follows brightness "
            "is then the same as one that follows the object; paint a dark object",
            make_design(1 - paint(36, 44, 20, 28, 12)),
        ),
        "object-at-the-center": (
            "its object is at the center of the picture, where a map of kind 3 always "
            "has its largest weight; move the object",
            make_design(paint(36, 44, 15, 19, 6)),
        ),
        "object-without-inside": (
            "its object is so small that each of its patches contains edges; paint one "
            "that fills whole patches",
            make_design(paint(36, 44, 26, 34, 1)),
        ),
        "small-canvas": (
            "its canvas is so small that a fixed patch can be the one at the center; "
            "make the canvas larger than five rows and columns of patches",
            make_design(paint(12, 12, 0, 0, 6), order=(0, 1, 2, 3)),
        ),
        "object-and-edges-swapped": (
            "it confuses kinds 0 and 2: inside a filled object there are no edges",
            lambda *x: {0: 2, 2: 0}.get(found := map_kind(*x), found),
        ),
    },
    hints=(
        "On which picture do the object, the brightest patches, the strongest edges "
        "and the center lie at different places?",
        "Paint a dark square of several patches on a bright canvas, far from the "
        "center and from the first three rows and columns of patches.",
    ),
)
