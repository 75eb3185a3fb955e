"""Exercise: find out how a function misuses its mask, by tests.

Source: the faults are those of public code, linked in the chapter
Axes: T queries, S keys, D width of query and key, E width of values
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import describe_fault, differ
from attnbook.exercises.inputs import draw_normal, shuffle_cases

# What can be built in, and the number of its fault.
FAULTS = {
    "right": 0,
    "True masks out": 1,
    "added as 1 and 0": 2,
    "added as 0 and -1": 2,
    "applied after the softmax": 3,
    "transposed": 4,
    "an empty row is uniform": 5,
    "an empty row is NaN": 5,
    "an empty row attends to the first key": 5,
}


@dataclass
class MaskedAttention:
    """Attention under a mask, with or without a fault.

    Called with query (T, D), key (S, D), value (S, E) and mask (T, S), it
    returns (T, E).
    """

    built_in: str

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor
    ) -> Tensor:
        """Attend, as far as the fault allows."""
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return self.weigh(scores, mask).to(value) @ value

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return weights (T, S).

        Raises:
            ValueError: if the mask is not boolean or has another shape.
        """
        if mask.dtype != torch.bool or mask.shape != scores.shape:
            raise ValueError(
                f"the mask must be boolean and {tuple(scores.shape)}, but is "
                f"{mask.dtype} and {tuple(mask.shape)}"
            )
        kind, empty = self.built_in, ~mask.any(-1, keepdim=True)
        if kind in ("added as 1 and 0", "added as 0 and -1"):
            return (scores + mask.to(scores)).softmax(-1)
        if kind == "applied after the softmax":
            return scores.softmax(-1) * mask
        if kind == "an empty row is uniform":
            return scores.masked_fill(~mask, -1e9).softmax(-1)
        if kind == "an empty row is NaN":
            return scores.masked_fill(~mask, -torch.inf).softmax(-1)
        if kind == "an empty row attends to the first key":
            mask = mask | empty & (torch.arange(mask.shape[-1]) == 0)
        if kind == "True masks out":
            mask = ~mask
        if kind == "transposed":
            mask = mask.mT
        return masked_softmax(scores, mask)


def mask_fault(attention: Callable, x: Tensor, mask: Tensor) -> int:
    """Return the number of the fault in how a function uses its mask.

    0: none. 1: True means masked out. 2: the mask is added as numbers. 3: it
    is applied after the softmax. 4: it is transposed. 5: an empty row gets
    something other than zeros.

    Args:
        attention: from query (T, D), key (S, D), value (S, E) and mask (T, S)
            to the output (T, E).
        x: an example of queries, keys and values.
        mask: an example of a mask.
    """
    # Queries of zeros make all scores equal, and values that are an identity
    # matrix make the output the weights.
    zero, one = torch.zeros(3, 2), torch.eye(3)
    past = torch.ones(3, 3, dtype=torch.bool).tril()
    row = attention(zero, zero, one, past)[1]
    e = torch.tensor(1.0).exp()
    expected = {  # the row of a query that can attend to keys 0 and 1
        1: torch.tensor([0.0, 0.0, 1.0]),
        2: torch.stack([e, e, e / e]) / (2 * e + 1),
        3: torch.tensor([1.0, 1.0, 0.0]) / 3,
        4: torch.tensor([0.0, 0.5, 0.5]),
    }
    for number, weights in expected.items():
        if torch.allclose(row, weights, atol=1e-4):
            return number
    empty = attention(zero, zero, one, torch.zeros_like(past))
    return 5 if empty.isnan().any() or empty.any() else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right function first, then every fault, in any order."""
    causal = torch.ones(4, 4, dtype=torch.bool).tril()

    def case(built_in: str, name: str, mask: Tensor) -> Case:
        what = describe_fault(built_in, FAULTS)
        inputs = MaskedAttention(built_in), draw_normal(rng, 4, 5), mask.clone()
        return Case(f"with {what}, given a mask that {name}", inputs)

    examples = (
        ("is causal", causal),
        ("allows everything", torch.ones_like(causal)),
    )
    return shuffle_cases(
        tuple(case(kind, *example) for kind in FAULTS for example in examples),
        rng,
    )


def make_diagnosis(
    *,
    use: Callable = lambda mask: torch.ones(3, 3, dtype=torch.bool).tril(),
    read: Callable = lambda weights, mask: weights,
):
    """Return a diagnosis that compares a function with every faulty one.

    Args:
        use: from the example to the mask that is tried.
        read: what is compared of the weights that a mask gives.
    """

    def answer(attention, x, mask):
        tried = use(mask)
        n = len(tried)
        zero, one = torch.zeros(n, 2), torch.eye(n)
        found = read(attention(zero, zero, one, tried), tried)
        for kind, number in FAULTS.items():
            other = MaskedAttention(kind)(zero, zero, one, tried)
            if number < 5 and not differ(read(other, tried), found):
                if number:
                    return number
                break
        empty = attention(zero, zero, one, torch.zeros_like(tried))
        return 5 if empty.isnan().any() or empty.any() else 0

    return answer


check_mask_fault = Exercise(
    title="how a function misuses its mask",
    stars=3,
    minutes=25,
    section="The mask contract: ten rules",
    solution=mask_fault,
    key_line="row = attention(zero, zero, one, past)[1]",
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "example-mask",
            "only the example tried",
            "it tries only the given mask, which may allow everything; then "
            "several faults make no difference. Make a mask of your own",
            make_diagnosis(use=lambda mask: mask),
        ),
        Mistake(
            "no-empty-row",
            "no empty row tried",
            "it never tries a query without any key",
            "return 5 if → return 0 if",
        ),
        Mistake(
            "nan-blind",
            "NaN not detected in an empty row",
            "it does not detect NaN in an empty row: every comparison with "
            "NaN is False",
            "empty.isnan().any() or empty.any() → (empty.abs() > 1e-6).any()",
        ),
        Mistake(
            "nan-only",
            "only NaN detected in an empty row",
            "it accepts every empty row that is not NaN; the output "
            "should be zero, not an average of masked-out values",
            " or empty.any() → ",
        ),
        Mistake(
            "sums-only",
            "only the sums tested",
            "it tests only whether the weights of a row sum to 1; a wrong "
            "mask has right sums, unless it is applied after the softmax",
            make_diagnosis(read=lambda weights, mask: weights.sum(-1)),
        ),
        Mistake(
            "zeros-only",
            "only zeros tested",
            "it tests only which weights are zero; masking after the softmax "
            "has the right zeros and the wrong sums",
            make_diagnosis(read=lambda weights, mask: (weights == 0).float()),
        ),
        Mistake(
            "symmetric-mask",
            "symmetric mask tried",
            "it tries a symmetric mask, which is its own transpose",
            make_diagnosis(
                use=lambda mask: torch.tensor([[1, 0, 0], [0, 1, 1], [0, 1, 1]]).bool()
            ),
        ),
        Mistake(
            "last-query-only",
            "one query of a causal mask compared",
            "it looks only at the last query of a causal mask, which can "
            "attend to every key",
            make_diagnosis(read=lambda weights, mask: weights[-1].round(decimals=1)),
        ),
        Mistake(
            "added-missed",
            "added numbers not recognized",
            "it does not recognize a mask that is added as numbers: the "
            "weights of masked-out keys are then smaller, but not zero",
            "2: torch.stack([e, e, e / e]) / (2 * e + 1), → ",
        ),
        Mistake(
            "inverted-and-transposed-swapped",
            "inverted and transposed confused",
            "it confuses faults 1 and 4: an inverted mask allows what is "
            "False, a transposed one exchanges queries and keys",
            renumber(mask_fault, {1: 4, 4: 1}),
        ),
        Mistake(
            "added-and-late-swapped",
            "added and applied late confused",
            "it confuses faults 2 and 3: a mask that is added leaves sums of "
            "1, a mask after the softmax does not",
            renumber(mask_fault, {2: 3, 3: 2}),
        ),
    ),
)
