"""Exercise: attention over the neighbors in a graph.

Source: Veličković et al. (2018), section 2.1, equations 1 to 4,
    https://arxiv.org/abs/1710.10903
Axes: N nodes, E edges, I width of the features, F width of the output
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.graph import (
    average_neighbors,
    score_static,
    softmax_by_target,
)
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, to_double


def graph_attention(
    features: Float[Tensor, "N I"],
    edges: Int[Tensor, "2 E"],
    weight: Float[Tensor, "F I"],
    a: Float[Tensor, "2 F"],
) -> Float[Tensor, "N F"]:
    """Return for each node the weighted mean of its neighbors' W h.

    Args:
        features: h, one row for each node.
        edges: the source and the target of each edge.
        weight: W.
        a: scores W h of the source by a[0] and of the target by a[1].

    Returns:
        zeros for a node without incoming edges.
    """
    projected = features @ weight.T
    scores = score_static(projected, edges, a)
    weights = softmax_by_target(scores, edges[1], len(features))
    return average_neighbors(projected, edges, weights)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One edge; two into one node; a graph; then what hides mistakes."""

    def inputs(
        edges: list | Tensor, nodes: int, wide: int = 3, narrow: int = 2
    ) -> tuple[Tensor, ...]:
        return (
            draw_normal(rng, nodes, wide),
            torch.as_tensor(edges, dtype=torch.long),
            draw_normal(rng, narrow, wide),
            draw_normal(rng, 2, narrow),
        )

    random = draw_integers(rng, 0, 5, 2, 14)
    random[:, 7] = random[:, 6]
    usual, few = inputs(random, 7), draw_integers(rng, 0, 6, 2, 4)
    loop, same = [[0, 1, 1], [1, 1, 2]], draw_integers(rng, 0, 1, 2, 2)
    return (
        Case("with one edge", inputs([[0], [1]], 2)),
        Case("with two edges into one node", inputs([[0, 1], [2, 2]], 3)),
        Case("with two edges out of one", inputs([[0, 0, 1], [1, 2, 2]], 3)),
        Case("with an edge of a node to itself", inputs(loop, 3)),
        Case("with 14 edges, one of them repeated", usual, gradient=True),
        Case("with fewer edges than nodes", inputs(few, 7, 2, 5)),
        Case("with all sizes equal", inputs(same, 2, 2, 2)),
        Case("with large scores", enlarge_scores(*inputs(random, 7))),
        Case("without edges", inputs(torch.zeros(2, 0), 3)),
        Case("in double precision", to_double(usual), asked=False),
    )


def enlarge_scores(
    features: Tensor, edges: Tensor, weight: Tensor, a: Tensor
) -> tuple[Tensor, ...]:
    """Return inputs whose scores are beyond what exp can represent."""
    source, target = (features @ weight.T)[edges]
    scores = score_pairs(source, target, a)
    largest = scores[scores.abs().argmax()]
    return features, edges, weight, a * (120 / largest)


def score_pairs(source: Tensor, target: Tensor, a: Tensor) -> Tensor:
    """Return the scores before LeakyReLU."""
    return source @ a[0] + target @ a[1]


def divide_powers(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
    """Return the softmax without subtracting the largest score."""
    powers = scores.exp()
    total = powers.new_zeros(nodes).index_add(0, target, powers)
    return powers / total[target]


def keep_own(features, edges, weight, a):
    """Return its own W h for a node without incoming edges."""
    output = graph_attention(features, edges, weight, a)
    has_edge = torch.isin(torch.arange(len(features)), edges[1])
    return torch.where(has_edge[:, None], output, features @ weight.T)


SCORED = "score_static(projected, edges, a)"
NORMALIZED = "softmax_by_target(scores, edges[1], len(features))"

check_graph_attention = Exercise(
    title="attention over neighbors",
    stars=2,
    minutes=20,
    section="Graphs: attention over neighbors",
    solution=graph_attention,
    returns=("output",),
    draw=draw,
    allowed="Everything in PyTorch is allowed; `attnbook.attention.graph` has "
    "the answer in it.",
    helpers=(score_static, softmax_by_target, average_neighbors),
    key_line=f"weights = {NORMALIZED}",
    mistakes=(
        Mistake(
            "softmax-over-sources",
            "softmax over the edges out of a source",
            "the softmax runs over the edges that leave a source; it should "
            "run over the edges into a target, whose weights sum to 1",
            "edges[1], len → edges[0], len",
        ),
        Mistake(
            "softmax-over-all-edges",
            "softmax over all edges",
            "one softmax runs over all edges of the graph; each target should "
            "have its own",
            f"{NORMALIZED} → scores.softmax(-1)",
        ),
        Mistake(
            "no-softmax",
            "scores as weights",
            "the scores are used as weights, without a softmax",
            f"{NORMALIZED} → scores",
        ),
        Mistake(
            "edges-reversed",
            "edges from target to source",
            "the edges are reversed: the first row of `edges` contains the "
            "sources, and outputs belong to the targets in the second row",
            "projected = → edges = edges.flip(0); projected =",
        ),
        Mistake(
            "a-swapped",
            "rows of a confused",
            "a[0] and a[1] are confused: a[0] belongs to the source of the edge",
            "edges, a) → edges, a.flip(-2))",
        ),
        Mistake(
            "no-leaky-relu",
            "LeakyReLU left out",
            "LeakyReLU is missing. Without it, the target's part of the score "
            "is the same for all of its edges and has no effect",
            f"{SCORED} → score_pairs(*projected[edges], a)",
        ),
        Mistake(
            "slope",
            "slope of 0.01",
            "LeakyReLU has a slope of 0.01 below zero, PyTorch's default; it "
            "should be 0.2",
            f"{SCORED} → torch.nn.functional.leaky_relu("
            "score_pairs(*projected[edges], a))",
        ),
        Mistake(
            "relu-before-the-product",
            "LeakyReLU before the product with a",
            "LeakyReLU is applied to the two vectors W h before the products "
            "with a; it should be applied to the sum of the two products",
            f"{SCORED} → score_pairs("
            "*torch.nn.functional.leaky_relu(projected[edges], 0.2), a)",
        ),
        Mistake(
            "self-loops",
            "edges of nodes to themselves added",
            "every node also attends to itself; it should do so only if "
            "`edges` contains an edge from the node to itself",
            "projected = → loops = torch.arange(len(features)).expand(2, -1); "
            "edges = torch.cat([edges, loops], 1); projected =",
        ),
        Mistake(
            "own-features",
            "own features without incoming edges",
            "a node without incoming edges keeps its own W h; its output "
            "should be zeros",
            keep_own,
        ),
        Mistake(
            "repeated-edges",
            "repeated edges counted once",
            "an edge that occurs twice is counted once, as in an adjacency "
            "matrix of zeros and ones; each occurrence should count",
            "projected = → edges = edges.unique(dim=1); projected =",
        ),
        Mistake(
            "overflow",
            "largest score not subtracted",
            "the exponentials of large scores overflow; subtract the largest "
            "score of each target first, which does not change the weights",
            f"{NORMALIZED} → divide_powers(scores, edges[1], len(features))",
        ),
    ),
)
