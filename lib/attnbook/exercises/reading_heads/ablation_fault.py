"""Exercise: find out what is wrong with an ablation of heads, by tests.

Source: the faults are those of the chapter's section on ablation and of its
    pitfalls
Axes: T positions, C model width, H heads
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.scaled_dot_product import scaled_scores
from attnbook.attention.self_attention import causal_mask
from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import (
    NEVER_FOUND,
    FaultyModule,
    describe_fault,
    differ,
    list_number_mistakes,
)
from attnbook.exercises.inputs import draw_normal, shuffle_cases

# What can be built in, and the number of its fault.
FAULTS = {
    "right": 0,
    "scores set to zero": 1,
    "other heads scaled up": 2,
    "bias left out": 3,
    "mean over the sequence instead of zero": 4,
    "ablation that stays": 5,
    "only the last position ablated": 6,
}


@dataclass(eq=False)
class AblatedLayer(FaultyModule):
    """Causal multi-head self-attention that can run without some heads.

    Called with x (T, C) and the heads to ablate, it returns (T, C). A right
    layer replaces the outputs of these heads by zeros, and then applies its
    output projection, which has a bias.

    Attributes:
        built_in: one of `FAULTS`.
        numbers: the matrices of queries, keys, values and output (C, C), and
            the bias (C,).
        heads: H.
        gone: the heads of earlier calls, if their ablation stays.
    """

    heads: int = 2
    gone: set[int] = field(default_factory=set)

    def __call__(
        self, x: Float[Tensor, "T C"], ablated: Collection[int]
    ) -> Float[Tensor, "T C"]:
        """Attend without some heads, as far as the fault allows.

        Raises:
            ValueError: if there is no such head.
        """
        gone = {int(head) for head in ablated}
        if not gone <= set(range(self.heads)):
            raise ValueError(
                f"heads are numbered 0 to {self.heads - 1}, but "
                f"{sorted(gone)} were to be ablated"
            )
        if self.built_in == "ablation that stays":
            self.gone |= gone
            gone = self.gone
        outputs = self.remove(self.attend(x, gone), gone)
        *_, W_output, bias = self.numbers
        if self.built_in == "bias left out" and gone:
            bias = torch.zeros_like(bias)
        return merge_heads(outputs[None])[0] @ W_output.T + bias

    def attend(self, x: Tensor, gone: Collection[int]) -> Tensor:
        """Return the outputs of the heads (H, T, D)."""
        query, key, value = (
            split_heads((x @ W.T)[None], self.heads)[0] for W in self.numbers[:3]
        )
        scores = scaled_scores(query, key)
        if self.built_in == "scores set to zero":
            scores[[*gone]] = 0.0
        return masked_softmax(scores, causal_mask(len(x), len(x))) @ value

    def remove(self, outputs: Tensor, gone: Collection[int]) -> Tensor:
        """Return the outputs without those of some heads."""
        kind, chosen = self.built_in, [*gone]
        left = self.heads - len(chosen)
        if kind == "scores set to zero":
            return outputs
        removed = outputs.clone()
        if kind == "mean over the sequence instead of zero":
            removed[chosen] = outputs[chosen].mean(dim=1, keepdim=True)
        elif kind == "only the last position ablated":
            removed[chosen, -1] = 0.0
        else:
            removed[chosen] = 0.0
        scaled = kind == "other heads scaled up" and left
        return removed * (self.heads / left) if scaled else removed


def ablation_fault(layer: Callable, x: Float[Tensor, "T C"], heads: int) -> int:
    """Return the number of the fault of an ablation, 0 if there is none.

    1: the scores of an ablated head are set to 0, not its output. 2: the other
    heads are multiplied by H / (H - the number of ablated heads). 3: the
    bias of the output projection is left out as well. 4: the output of an
    ablated head is replaced by its mean over the positions of the sequence. 5:
    the ablation stays in later calls. 6: only the last position is ablated.

    Args:
        layer: from an input (T, C) and the ablated heads, a list of numbers
            from 0, to the output (T, C) of causal multi-head attention, whose
            bias is not 0.
        x: an example.
        heads: H, at least 2.
    """
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(8, x.shape[1], generator=rng)
    later = torch.cat([x[:-1], x[-1:] + 1])
    whole, first = layer(x, []), layer(x, [0])
    if differ(layer(x, []), whole):
        return 5
    if not differ(first[:-1], whole[:-1]):
        return 6
    if not differ(first[0], whole[0]):  # position 0 has only one key
        return 1
    if differ(layer(later, [0])[0], first[0]):
        return 4
    if not layer(x, [*range(heads)]).any():
        return 3
    parts = first + layer(x, [1]) - layer(x, [0, 1])
    return 2 if differ(parts, whole) else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Right layers first, then every fault, for one and several positions."""

    def case(built_in: str, T: int, heads: int) -> Case:
        C = 3 * heads
        matrices = (draw_normal(rng, C, C) / C**0.5 for _ in range(4))
        bias = draw_normal(rng, C).sign() * (0.5 + torch.rand(C, generator=rng))
        layer = AblatedLayer(built_in, (*matrices, bias), heads)
        plural = "s" if T > 1 else ""
        tries = (
            f"with {describe_fault(built_in, FAULTS)} in a layer of {heads} "
            f"heads, given {T} position{plural}"
        )
        return Case(tries, (layer, draw_normal(rng, T, C), heads))

    sizes = (1, 2), (5, 3)
    cases = tuple(case(kind, *size) for kind in FAULTS for size in sizes)
    return shuffle_cases(cases, rng)


check_ablation_fault = Exercise(
    title="the fault of an ablation",
    stars=3,
    minutes=25,
    section="Ablation: what does the model lose without a head?",
    solution=ablation_fault,
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "example-only",
            "only the example tried",
            "it tries only the given example. With a single position, a head "
            "has one key, so that its scores do not matter, and its mean over "
            "the sequence is its output. Make an input of several positions",
            "torch.randn(8, x.shape[1], generator=rng) → x",
        ),
        Mistake(
            "scores-not-tested",
            "uniform weights not noticed",
            "it does not notice a head whose scores are set to 0. At position "
            "0, such a head still has its old output, because there is only "
            "one key",
            "differ(first[0], whole[0]) → True",
        ),
        Mistake(
            "sum-not-tested",
            "other heads not compared",
            "it does not notice that the other heads are scaled up. The output "
            "is a sum over heads, so what two heads contribute together must "
            "be the sum of what they contribute alone",
            "2 if differ(parts, whole) else 0 → 0",
        ),
        Mistake(
            "bias-not-tested",
            "bias not tested",
            "it does not notice that the bias is left out: without all heads, "
            "the output should be the bias",
            "if not layer(x, [*range(heads)]).any() → if False",
        ),
        Mistake(
            "later-positions-not-tested",
            "later positions not changed",
            "it does not notice that the mean over the sequence also contains "
            "later positions. Change the last position, and compare the first "
            "one",
            "if differ(layer(later, [0])[0], first[0]) → if False",
        ),
        Mistake(
            "one-call",
            "intact layer run only once",
            "it does not notice an ablation that stays. Run the intact layer "
            "again after an ablation",
            "if differ(layer(x, []), whole) → if False",
        ),
        Mistake(
            "earlier-positions-not-tested",
            "earlier positions not compared",
            "it does not notice an ablation of the last position only; compare "
            "all positions",
            renumber(ablation_fault, {6: 0}),
        ),
        Mistake(
            "last-position-as-scores",
            "last position taken for scores of 0",
            "it takes an ablation of the last position for scores of 0. With "
            "scores of 0, all positions but the first change",
            "differ(first[:-1], whole[:-1]) → True",
        ),
        Mistake(
            "scale-and-bias-swapped",
            "scale and bias confused",
            "it confuses faults 2 and 3: without all heads, a layer that "
            "scales the other heads returns its bias",
            renumber(ablation_fault, {2: 3, 3: 2}),
        ),
        Mistake(
            "scores-and-mean-swapped",
            "scores and mean confused",
            "it confuses faults 1 and 4: scores of 0 give the mean over "
            "earlier values, the other fault a mean over all positions",
            renumber(ablation_fault, {1: 4, 4: 1}),
        ),
        NEVER_FOUND,
        *list_number_mistakes(ablation_fault),
    ),
)
