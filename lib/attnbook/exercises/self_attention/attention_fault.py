"""Exercise: find out what is wrong with a causal attention layer, by tests.

Source: the faults are those of public code, linked in the chapter
Axes: B batch, T positions, C width of the input, D width of query and key, E
    value width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import (
    NEVER_FOUND,
    FaultyModule,
    describe_fault,
    list_number_mistakes,
)
from attnbook.exercises.inputs import draw_normal

# What can be built into a layer, and the number of its fault.
FAULTS = {
    "right": 0,
    "no mask": 1,
    "inverted mask": 1,
    "next position visible": 1,
    "own position masked": 2,
    "own position masked after the first": 2,
    "masked after the softmax": 3,
    "sigmoid": 3,
    "keys of the first sequence": 4,
    "keys of the last sequence": 4,
    "equal weights": 5,
}


class CausalLayer(FaultyModule):
    """A layer of causal self-attention, with or without a fault.

    Called with x (B, T, C), it returns the output (B, T, E).
    """

    def __call__(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T E"]:
        """Attend, as far as the fault allows."""
        W_query, W_key, W_value = self.numbers
        memory = x
        if self.built_in == "keys of the first sequence":
            memory = x[:1].expand_as(x)
        if self.built_in == "keys of the last sequence":
            memory = x[-1:].expand_as(x)
        query, key = x @ W_query.T, memory @ W_key.T
        scores = query @ key.mT * W_query.shape[0] ** -0.5
        if self.built_in == "equal weights":
            scores = torch.zeros_like(scores)
        return self._weights(scores) @ (memory @ W_value.T)

    def _weights(self, scores: Tensor) -> Tensor:
        """Return weights (B, T, T) of scores (B, T, T)."""
        ones = torch.ones_like(scores, dtype=torch.bool)
        visible = {
            "no mask": ones,
            "inverted mask": ones.triu(),
            "next position visible": ones.tril(1),
            "own position masked": ones.tril(-1),
            "own position masked after the first": mask_own_after_first(ones),
        }.get(self.built_in, ones.tril())
        if self.built_in == "masked after the softmax":
            return scores.softmax(-1) * visible
        if self.built_in == "sigmoid":
            return scores.sigmoid() * visible
        scores = scores.masked_fill(~visible, -torch.inf)
        return scores.softmax(-1).nan_to_num()


def mask_own_after_first(ones: Tensor) -> Tensor:
    """Return True below the diagonal, and at the first position's own key."""
    visible = ones.tril(-1)
    visible[..., 0, 0] = True
    return visible


def attention_fault(layer: Callable, x: Float[Tensor, "B T C"]) -> int:
    """Return the number of a layer's fault, 0 if there is none.

    1: later positions have positive weights. 2: a position does not attend to
    itself. 3: the weights do not sum to 1. 4: a sequence depends on another
    one of the batch. 5: the weights do not depend on the input.

    Args:
        layer: x (B, T, C) to output (B, T, E).
        x: an example of the input.
    """

    def equal(a: Tensor, b: Tensor) -> bool:
        return torch.allclose(a, b, atol=1e-4)

    rng = torch.Generator().manual_seed(0)
    x, other = torch.randn(2, 3, 4, x.shape[-1], generator=rng)
    same = x[:, :1].expand_as(x)  # all keys and values of a sequence are equal
    last = torch.cat([same[:, :3], other[:, :1]], dim=1)
    if equal(layer(last)[:, 3], layer(same)[:, 3]):
        return 2
    if not equal(layer(same)[:, 1:], layer(same)[:, :3]):
        return 3
    output = layer(x)
    later = torch.cat([x[:, :2], other[:, 2:]], dim=1)
    if not equal(layer(later)[:, :2], output[:, :2]):
        return 1
    alone = torch.cat([layer(sequence[None]) for sequence in x])
    if not equal(alone, output):
        return 4
    return 5 if equal(layer(2 * x), 2 * output) else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right layer first, then every fault, in any order."""

    def case(built_in: str, zero: bool) -> Case:
        c, d, e = 4, 3, 5
        numbers = tuple(draw_normal(rng, n, c) * c**-0.5 for n in (d, d, e))
        x = draw_normal(rng, 2, 3, c)
        if zero:  # one sequence, all of it zeros
            x = torch.zeros(1, 2, c)
        what = describe_fault(built_in, FAULTS)
        begins = ", given an x of zeros" if zero else ""
        layer = CausalLayer(built_in, numbers)
        return Case(f"with a layer that has {what}{begins}", (layer, x))

    kinds = [(kind, zero) for kind in FAULTS for zero in (False, True)]
    order = 1 + torch.randperm(len(kinds) - 1, generator=rng)
    return tuple(case(*kinds[i]) for i in (0, *order.tolist()))


check_attention_fault = Exercise(
    title="the fault of a causal attention layer",
    stars=3,
    minutes=25,
    section="Pitfalls",
    solution=attention_fault,
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "own-key-and-query",
            "own position tested on an ordinary input",
            "it replaces the last vector of an ordinary input; this also "
            "changes the query, so the output changes even if the position "
            "does not attend to itself. Make the other vectors equal",
            (
                "[same[:, :3], other[:, :1]] → [x[:, :3], other[:, :1]]",
                "layer(last)[:, 3], layer(same)[:, 3] → "
                "layer(last)[:, 3], layer(x)[:, 3]",
            ),
        ),
        Mistake(
            "own-position-first",
            "own position tested at the first position",
            "it tests only a single position; code can treat the first "
            "position, which has no earlier key, separately",
            "layer(last)[:, 3], layer(same)[:, 3] → "
            "layer(x[:, :1]), layer(other[:, :1])",
        ),
        Mistake(
            "last-changed-first-seen",
            "leak tested at the largest distance",
            "it replaces only the last vector and looks at the first output, "
            "so it misses a mask that is off by one position",
            (
                "[x[:, :2], other[:, 2:]] → [x[:, :3], other[:, 3:]]",
                "layer(later)[:, :2], output[:, :2] → "
                "layer(later)[:, :1], output[:, :1]",
            ),
        ),
        Mistake(
            "mask-before-sums",
            "mask tested before the sums",
            "it tests the mask before the sums of the weights. A mask after "
            "the softmax gives later positions no weight, but they are in the "
            "denominator, so the outputs depend on them",
            (
                "return 3 → pass",
                "alone = → "
                "if not equal(layer(same)[:, 1:], layer(same)[:, :3]): "
                "return 3\n    alone =",
            ),
        ),
        Mistake(
            "sums-before-own",
            "sums tested before the own position",
            "it tests the sums of the weights before it tests whether a "
            "position attends to itself. Without its own key, the first "
            "position has no key at all, and its weights sum to 0",
            "if equal(layer(last) → "
            "if not equal(layer(same)[:, 1:], layer(same)[:, :3]): "
            "return 3\n    if equal(layer(last)",
        ),
        Mistake(
            "changed-position-compared",
            "changed positions compared",
            "its test of the mask compares all outputs, and those at the "
            "replaced positions always change; compare earlier ones",
            "layer(later)[:, :2], output[:, :2] → layer(later), output",
        ),
        Mistake(
            "first-sequence-only",
            "only the first sequence alone",
            "its test of the batch looks at the first sequence only, and "
            "misses layers in which the others depend on the first",
            "[layer(sequence[None]) for sequence in x] → [layer(x[:1]), output[1:]]",
        ),
        Mistake(
            "one-sequence",
            "only batches of one sequence tried",
            "it tries only batches of one sequence, in which no sequence can "
            "depend on another",
            "torch.randn(2, 3, 4, → torch.randn(2, 1, 4,",
        ),
        Mistake(
            "example-input",
            "the given input is used",
            "it uses the given x, which may be zeros, where every layer "
            "returns zeros; choose your own numbers",
            (
                "x, other = torch.randn(2, 3, 4, x.shape[-1], generator=rng) "
                "→ other = x + torch.randn(x.shape, generator=rng)",
                "same[:, :3], other → same[:, 1:], other",
                "layer(last)[:, 3], layer(same)[:, 3] → "
                "layer(last)[:, -1], layer(same)[:, -1]",
                "layer(same)[:, :3] → layer(same)[:, :1]",
            ),
        ),
        Mistake(
            "one-position-linear",
            "weights tested with one position",
            "its test of the weights has one position, whose weight is 1 "
            "whatever the scores",
            "layer(2 * x), 2 * output → layer(2 * x[:, :1]), 2 * output[:, :1]",
        ),
        Mistake(
            "exact-comparison",
            "outputs compared exactly",
            "it compares outputs of equal inputs exactly; they differ by rounding",
            "not equal(layer(same) → not torch.equal(layer(same)",
        ),
        Mistake(
            "larger-rows-only",
            "only sums above 1 refused",
            "it detects outputs that grow, not outputs that shrink, when the "
            "weights do not sum to 1",
            "not equal(layer(same)[:, 1:], layer(same)[:, :3]) → "
            "(layer(same).norm(dim=-1) > 1.001 * layer(same)[:, "
            "-1:].norm(dim=-1)).any()",
        ),
        Mistake(
            "only-the-mask",
            "only the mask is tested",
            "it tests only whether a position attends to later ones",
            lambda layer, x: int(attention_fault(layer, x) == 1),
        ),
        *list_number_mistakes(attention_fault),
        NEVER_FOUND,
    ),
)
