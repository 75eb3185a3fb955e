"""Exercise: find out what is wrong with a tiled attention, by tests.

Source: the faults are those of the chapter's pitfalls
Axes: T queries, S keys, D width of query and key, E value width
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import describe_fault
from attnbook.exercises.inputs import draw_normal, shuffle_cases

# What can be built into an implementation, and the number of its fault.
FAULTS = {
    "right": 0,
    "output not rescaled": 1,
    "padded keys attended to": 2,
    "logsumexp to base 2": 3,
    "maximum starts at 0": 4,
    "scaled by the value width": 5,
}


@dataclass
class TiledAttention:
    """Tiled attention with or without a fault.

    Called with query (T, D), key (S, D), value (S, E) and the number of
    queries and keys of a tile, it returns the output (T, E) and each query's
    logsumexp (T,).
    """

    built_in: str

    def __call__(
        self,
        query: Float[Tensor, "T D"],
        key: Float[Tensor, "S D"],
        value: Float[Tensor, "S E"],
        block: int,
    ) -> tuple[Float[Tensor, "T E"], Float[Tensor, "T"]]:
        """Compute attention, as far as the fault allows."""
        wide = self.built_in == "scaled by the value width"
        width = value.shape[-1] if wide else query.shape[-1]
        if self.built_in == "padded keys attended to":
            more = -len(key) % block
            key, value = (F.pad(x, (0, 0, 0, more)) for x in (key, value))
        zero = self.built_in == "maximum starts at 0"
        begin = 0.0 if zero else -torch.inf
        maximum = query.new_full((len(query),), begin)
        total = torch.zeros_like(maximum)
        output = query.new_zeros(len(query), value.shape[-1])
        for k, v in zip(key.split(block), value.split(block), strict=True):
            scores = query @ k.T * width**-0.5
            highest = torch.maximum(maximum, scores.amax(-1))
            factor = (maximum - highest).exp()
            weights = (scores - highest[:, None]).exp()
            total = total * factor + weights.sum(-1)
            if self.built_in != "output not rescaled":
                output = output * factor[:, None]
            output, maximum = output + weights @ v, highest
        lse = maximum + total.log()
        if self.built_in == "logsumexp to base 2":
            lse = lse * 1.4426950408889634
        return output / total[:, None], lse


def tiled_fault(attention: Callable, query: Tensor, key: Tensor, value: Tensor) -> int:
    """Return the number of an implementation's fault, 0 if there is none.

    1: the output is not rescaled when the maximum rises. 2: the last tile is
    padded with keys of zeros, which receive weight. 3: the logsumexp is to
    base 2. 4: the running maximum starts at 0. 5: the scores are divided by
    the root of the value width.

    Args:
        attention: (query, key, value, block) to the output and the logsumexp.
        query: an example (T, D).
        key: of the example (S, D).
        value: of the example (S, E).
    """
    rng = torch.Generator().manual_seed(0)

    def draw(T: int, S: int, D: int, E: int) -> list[Tensor]:
        shapes = (T, D), (S, D), (S, E)
        return [torch.randn(*x, generator=rng) for x in shapes]

    def is_wrong(q: Tensor, k: Tensor, v: Tensor, block: int) -> bool:
        scores = q @ k.T * q.shape[-1] ** -0.5
        output, _ = attention(q, k, v, block)
        return not torch.allclose(output, scores.softmax(-1) @ v, atol=1e-3)

    q, k, v = draw(3, 4, 4, 4)
    exact = (q @ k.T / 2).logsumexp(-1)
    if not torch.allclose(attention(q, k, v, 4)[1], exact, atol=1e-3):
        return 3
    if is_wrong(*draw(3, 4, 4, 9), 4):  # one full tile, another value width
        return 5
    if is_wrong(*draw(3, 5, 4, 4), 8):  # one tile that is not full
        return 2
    far = torch.full((4, 4), 16.0)  # scores of -512
    if is_wrong(far, -far, v, 4):
        return 4
    return int(is_wrong(*draw(3, 32, 4, 4), 4))  # several full tiles


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right implementation first, then every fault, in any order."""
    cases = []
    for kind in FAULTS:
        for S in 8, 7:
            query, key = draw_normal(rng, 3, 4), draw_normal(rng, S, 4)
            value = draw_normal(rng, S, 4)
            what = describe_fault(kind, FAULTS)
            cases.append(
                Case(
                    f"with an implementation that has {what}, and {S} keys",
                    (TiledAttention(kind), query, key, value),
                )
            )
    return shuffle_cases(tuple(cases), rng)


def check_only_example(attention, query, key, value):
    """Return a diagnosis that tests nothing but the example."""
    scores = query @ key.T * query.shape[-1] ** -0.5
    output, lse = attention(query, key, value, 4)
    if not torch.allclose(lse, scores.logsumexp(-1), atol=1e-3):
        return 3
    right = torch.allclose(output, scores.softmax(-1) @ value, atol=1e-3)
    return 0 if right else 1


check_tiled_fault = Exercise(
    title="the fault of a tiled attention",
    stars=3,
    minutes=25,
    section="Pitfalls",
    solution=tiled_fault,
    key_line="return not torch.allclose(output, scores.softmax(-1) @ v, atol=1e-3)",
    returns=("fault",),
    draw=draw,
    allowed="Everything is allowed.",
    forbidden=frozenset(),
    mistakes=(
        Mistake(
            "always-right",
            "no fault found",
            "it reports no fault whatever the implementation is",
            lambda attention, query, key, value: 0,
        ),
        Mistake(
            "example-only",
            "only the example is tested",
            "it tests only the given example, which hides most faults; design "
            "inputs of your own",
            check_only_example,
        ),
        Mistake(
            "one-tile",
            "only one tile of keys",
            "it uses only one tile of keys, in which nothing is rescaled",
            "draw(3, 32, 4, 4) → draw(3, 4, 4, 4)",
        ),
        Mistake(
            "padding-not-tested",
            "incomplete tile not tested",
            "it does not test a number of keys that is not a multiple of the block",
            "return 2 → pass",
        ),
        Mistake(
            "base-not-tested",
            "logsumexp not tested",
            "it tests only the output; the logsumexp may be wrong as well",
            "return 3 → pass",
        ),
        Mistake(
            "positive-scores",
            "very negative scores not tested",
            "it does not test scores that are all very negative, at which a "
            "maximum of 0 makes every exponential underflow",
            "return 4 → pass",
        ),
        Mistake(
            "same-width",
            "values as wide as keys",
            "its values are as wide as its keys, so the division by the wrong "
            "width cannot be seen",
            "draw(3, 4, 4, 9) → draw(3, 4, 4, 4)",
        ),
        Mistake(
            "several-tiles-first",
            "padding taken for a missing factor",
            "it tests several tiles with an incomplete last one, so it takes "
            "padding for an output that is not rescaled; change one thing at "
            "a time",
            renumber(tiled_fault, {2: 1}),
        ),
        Mistake(
            "swapped",
            "scale and logarithm confused",
            "it confuses faults 3 and 5: a logsumexp to base 2 leaves the output right",
            renumber(tiled_fault, {3: 5, 5: 3}),
        ),
        Mistake(
            "any-fault",
            "all faults reported as 1",
            "it finds out that there is a fault and reports every fault as 1",
            lambda *given: min(tiled_fault(*given), 1),
        ),
    ),
)
