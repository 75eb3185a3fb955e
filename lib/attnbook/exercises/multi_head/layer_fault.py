"""Exercise: find out what is wrong with a multi-head layer, by tests.

Source: the faults are those of public implementations, linked in the chapter
Axes: B batch, T positions, C model width, H heads, D width of a head
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import (
    describe_fault,
    list_number_mistakes,
)
from attnbook.exercises.inputs import draw_normal, shuffle_cases
from attnbook.exercises.multi_head.merge_heads import merge_by_view
from attnbook.exercises.multi_head.split_heads import split_by_view

# What can be built into a layer, and the number of its fault.
FAULTS = {
    "right": 0,
    "split by a reshape": 1,
    "merged by a reshape": 2,
    "divided by √C": 3,
    "not divided": 3,
    "weights averaged over the heads": 4,
    "scores averaged over the heads": 4,
    "attention over the batch": 5,
}


@dataclass
class Layer:
    """Multi-head self-attention with or without a fault.

    Called with x (B, T, C) and the matrices (C, C) of queries, keys, values
    and output, it returns (B, T, C).
    """

    built_in: str
    heads: int

    def __call__(
        self,
        x: Tensor,
        W_query: Tensor,
        W_key: Tensor,
        W_value: Tensor,
        W_output: Tensor,
    ) -> Tensor:
        """Attend, as far as the fault allows."""
        kind = self.built_in
        if kind == "attention over the batch":
            x = x.transpose(0, 1)
        split = split_by_view if kind == "split by a reshape" else split_heads
        query, key, value = (
            split(x @ W.T, self.heads) for W in (W_query, W_key, W_value)
        )
        width = x.shape[-1] if kind == "divided by √C" else query.shape[-1]
        width = 1 if kind == "not divided" else width
        scores = query @ key.mT / width**0.5
        if kind == "scores averaged over the heads":
            scores = scores.mean(1, keepdim=True)
        weights = scores.softmax(-1)
        if kind == "weights averaged over the heads":
            weights = weights.mean(1, keepdim=True)
        merge = merge_by_view if kind == "merged by a reshape" else merge_heads
        output = merge(weights @ value) @ W_output.T
        swapped = kind == "attention over the batch"
        return output.transpose(0, 1) if swapped else output


def layer_fault(layer: Callable, x: Tensor, heads: int) -> int:
    """Return the number of a layer's fault, 0 if there is none.

    1: the heads are split without a transpose. 2: they are merged without a
    transpose. 3: the scores have the wrong scale. 4: all heads have the same
    weights. 5: the sequences of a batch are mixed.

    Args:
        layer: maps (x, W_query, W_key, W_value, W_output) to the output.
        x: an example of the input (B, T, C).
        heads: of the layer.
    """

    def differ(a: Tensor, b: Tensor) -> bool:
        return not torch.allclose(a, b, atol=1e-3)

    def attends_wrongly(W: Tensor) -> bool:
        query = split_heads(x @ W.T, heads)
        right = merge_heads(attend(query, query, split_heads(x, heads)))
        return differ(layer(x, W, W, one, one), right)

    rng, C = torch.Generator().manual_seed(0), x.shape[-1]
    x = torch.randn(x.shape, generator=rng)
    W = torch.randn(C, C, generator=rng) / C**0.5
    zero, one = torch.zeros(C, C), torch.eye(C)
    # With queries of zeros, all weights are equal: each output is a mean of x.
    found = layer(x, zero, W, one, one)
    if differ(found, x.mean(1, keepdim=True).expand_as(x)):
        if not differ(found, x.mean(0).expand_as(x)):
            return 5
        return 2 if differ(found, found[:, :1].expand_as(x)) else 1
    if attends_wrongly(W[: C // heads].repeat(heads, 1)):  # all heads are equal
        return 3
    return 4 if attends_wrongly(W) else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right layer first, then every fault, in any order."""

    def case(built_in: str, constant: bool) -> Case:
        b, t, heads, width = 3, 4, 2, 5
        x = draw_normal(rng, b, t, heads * width)
        x = torch.ones_like(x) if constant else x
        what = describe_fault(built_in, FAULTS)
        given = ", given an input of ones" if constant else ""
        inputs = Layer(built_in, heads), x, heads
        return Case(f"with a layer that has {what}{given}", inputs)

    kinds = [(kind, constant) for kind in FAULTS for constant in (False, True)]
    return shuffle_cases(tuple(case(*kind) for kind in kinds), rng)


check_layer_fault = Exercise(
    title="the fault of a multi-head layer",
    stars=3,
    minutes=25,
    section="Pitfalls",
    solution=layer_fault,
    key_line="right = merge_heads(attend(query, query, split_heads(x, heads)))",
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "example-input",
            "only the example tried",
            "it tries only the given input, whose positions may all be equal; "
            "every average of equal vectors is the same. Draw a random input",
            "torch.randn(x.shape, generator=rng) → x",
        ),
        Mistake(
            "one-position",
            "only one position tried",
            "it tries sequences of one position, where splitting, merging, "
            "scale and weights make no difference",
            "torch.randn(x.shape → torch.randn(x[:, :1].shape",
        ),
        Mistake(
            "equal-weights-only",
            "queries and keys not tested",
            "it tests only with equal weights, so it cannot see the scale of "
            "the scores, nor whether the heads share their weights",
            renumber(layer_fault, {3: 0, 4: 0}),
        ),
        Mistake(
            "different-heads",
            "scale tested with different heads",
            "its test of the scale uses heads with different projections, so "
            "a layer whose heads share their weights fails it as well; give "
            "all heads the same projections first",
            "W[: C // heads].repeat(heads, 1) → W",
        ),
        Mistake(
            "weights-not-isolated",
            "no test with equal weights",
            "it has no test in which the weights are known, so other faults "
            "look like a wrong scale; queries of zeros give equal weights",
            "if differ(found, x.mean(1, keepdim=True).expand_as(x)): → if False:",
        ),
        Mistake(
            "split-and-merge-swapped",
            "split and merge confused",
            "it confuses splitting and merging: with equal weights, the "
            "outputs are the same at every position after a wrong split, and "
            "differ after a wrong merge",
            renumber(layer_fault, {1: 2, 2: 1}),
        ),
        Mistake(
            "exact-comparison",
            "outputs compared exactly",
            "it compares outputs exactly, and rounding makes right outputs "
            "differ in the last digits",
            "torch.allclose(a, b, atol=1e-3) → torch.equal(a, b)",
        ),
        Mistake(
            "shapes-only",
            "only shapes compared",
            "it compares only shapes, which are right with each of these faults",
            lambda layer, x, heads: int(
                layer(x, *4 * [torch.eye(x.shape[-1])]).shape != x.shape
            ),
        ),
        *list_number_mistakes(layer_fault),
    ),
)
