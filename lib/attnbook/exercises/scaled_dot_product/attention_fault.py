"""Exercise: find out what is wrong with an attention function, by tests.

Source: the faults are those of public code, linked in the chapter
Axes: T queries, S keys, D width of query and key, E value width
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import describe_fault, differ
from attnbook.exercises.inputs import draw_normal, shuffle_cases

# What can be built into a function, and the number of its fault.
FAULTS = {
    "scaled early": 0,
    "scaled late": 0,
    "softmax over the queries": 1,
    "scaled after the softmax": 2,
    "sigmoid": 2,
    "not scaled": 3,
    "divided by D": 3,
    "divided by √S": 3,
    "divided by √T": 3,
    "divided by √E": 3,
    "scaled twice": 3,
    "keys reshaped": 4,
    "keys averaged": 5,
}


@dataclass(frozen=True)
class Attention:
    """An attention function with or without a fault.

    Called with query (T, D), key (S, D) and value (S, E), it returns the
    output (T, E), as far as the fault allows.
    """

    built_in: str

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend, as far as the fault allows."""
        kind, width = self.built_in, query.shape[-1]
        divisor = {
            "not scaled": 1.0,
            "scaled after the softmax": 1.0,
            "divided by D": width,
            "scaled twice": width,
            "divided by √S": key.shape[-2] ** 0.5,
            "divided by √T": query.shape[-2] ** 0.5,
            "divided by √E": value.shape[-1] ** 0.5,
        }.get(kind, width**0.5)
        turned = key.mT
        if kind == "keys reshaped":
            turned = key.reshape(width, key.shape[-2])
        if kind == "scaled late":
            scores = query @ turned / divisor
        else:
            scores = (query / divisor) @ turned
        weights = self._normalize(scores)
        if kind == "scaled after the softmax":
            weights = weights / width**0.5
        return weights @ (key if kind == "keys averaged" else value)

    def _normalize(self, scores: Tensor) -> Tensor:
        """Return weights (T, S) of scores (T, S)."""
        if self.built_in == "sigmoid":
            return scores.sigmoid()
        over = -2 if self.built_in == "softmax over the queries" else -1
        return scores.softmax(over)


def attention_fault(attend: Callable, query: Tensor, key: Tensor, value: Tensor) -> int:
    """Return the number of an attention function's fault, 0 if there is none.

    1: softmax over the queries. 2: the weights of a query do not sum to 1, for
    another reason. 3: wrong scale. 4: key components mixed up. 5: the values
    are not averaged.

    Args:
        attend: (query, key, value) to output.
        query: an example of queries.
        key: an example of keys.
        value: an example of values; all sizes of the examples are equal.
    """
    rng = torch.Generator().manual_seed(0)
    query, key = draw_normal(rng, 3, 7), draw_normal(rng, 5, 7)
    unit = torch.eye(5)  # as values: the output is then the weights
    weights = attend(query, key, unit)
    if not differ(attend(query, key, -unit), weights):
        return 5
    if not differ(attend(query[:1], key, unit), torch.ones(1, 5)):
        return 1  # a single query has all the weight of every key
    if differ(weights.sum(-1), torch.ones(3)):
        return 2
    order = torch.tensor([1, 0, 2, 3, 4])
    if differ(attend(query, key[order], unit), weights[:, order]):
        return 4
    scores, logs = query @ key.T, weights.log()
    factor = (logs[:, 0] - logs[:, 1]) / (scores[:, 0] - scores[:, 1])
    return 3 if differ(factor, torch.full((3,), 7**-0.5)) else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right function first, then every fault, in any order."""

    def case(built_in: str) -> Case:
        inputs = (
            Attention(built_in),
            *(draw_normal(rng, 4, 4) for _ in range(3)),
        )
        what = describe_fault(built_in, FAULTS)
        return Case(f"with a function that has {what}", inputs)

    return shuffle_cases(tuple(map(case, FAULTS)), rng)


check_attention_fault = Exercise(
    title="diagnosis of an attention function",
    stars=3,
    minutes=25,
    section="Pitfalls",
    solution=attention_fault,
    key_line="factor = (logs[:, 0] - logs[:, 1]) / (scores[:, 0] - scores[:, 1])",
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "always-right",
            "no fault found",
            "it returns 0, whatever it is given",
            lambda attend, query, key, value: 0,
        ),
        Mistake(
            "example-sizes",
            "only the example sizes",
            "it tests only inputs whose sizes are all equal, where √S, √T and "
            "√E are the same number as √D",
            (
                "draw_normal(rng, 3, 7), draw_normal(rng, 5, 7) → "
                "draw_normal(rng, 2, 5, 5)",
                "manual_seed(0) → manual_seed(7)",
                "torch.ones(3) → torch.ones(5)",
                "torch.full((3,), 7**-0.5) → torch.full((5,), 5**-0.5)",
            ),
        ),
        Mistake(
            "values-untested",
            "values not tested",
            "it does not test whether the output depends on the values",
            ("return 5 → pass", "torch.ones(1, 5) → torch.ones(())"),
        ),
        Mistake(
            "queries-untested",
            "a single query not tested",
            "it never calls the given function with a single query, so that a "
            "softmax over the queries looks like weights that do not sum to 1",
            "return 1 → pass",
        ),
        Mistake(
            "sums-untested",
            "sums not tested",
            "it does not test whether the weights of a query sum to 1",
            "return 2 → pass",
        ),
        Mistake(
            "keys-unmoved",
            "keys not permuted",
            "it does not exchange two keys, so that keys whose components are "
            "mixed up look like a wrong scale",
            "return 4 → pass",
        ),
        Mistake(
            "scale-untested",
            "scale not tested",
            "it does not measure the factor of the products; a wrong scale "
            "leaves the order of the weights unchanged",
            "return 3 if → return 0 if",
        ),
        Mistake(
            "scale-of-width",
            "1/D taken for the right scale",
            "it takes 1/D for the right factor of the products; it is 1/√D",
            "7**-0.5 → 1 / 7",
        ),
        Mistake(
            "any-smaller-scale",
            "any factor below 1 accepted",
            "it accepts every factor below 1; the right one is 1/√D",
            "differ(factor, torch.full((3,), 7**-0.5)) → (factor > 0.99).any()",
        ),
        Mistake(
            "faults-swapped",
            "faults 1 and 2 swapped",
            "the numbers of the faults 1 and 2 are swapped",
            renumber(attention_fault, {1: 2, 2: 1}),
        ),
    ),
)
