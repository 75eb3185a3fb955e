"""Exercise: design ablations that show which of two heads copies.

Source: heads that take over when others are removed: McGrath et al. (2023),
    https://arxiv.org/abs/2307.15771
Axes: H heads
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake

EXPLANATIONS = ("first", "second", "either", "together", "another")


# What fails without the first, the second, and both: the explanation.
TABLE = {
    (True, False, True): 0,
    (False, True, True): 1,
    (False, False, True): 2,
    (True, True, True): 3,
}


@dataclass
class CopyingModel:
    """A model of several heads that copies a symbol, for one of five reasons.

    `model(ablated)` returns the share of symbols that it copies correctly
    without the heads in `ablated`.

    Attributes:
        reason: "first", "second", "either", "together" or "another".
        pair: the two heads that attend to the symbol.
        costs: how much accuracy each other head is worth.
        chance: the accuracy without a head that copies.
    """

    reason: str
    pair: tuple[int, int]
    costs: tuple[float, ...]
    chance: float

    def __call__(self, ablated: Collection[int]) -> float:
        """Return the share of symbols copied correctly.

        Args:
            ablated: the heads that are removed, from 0 to H - 1.

        Raises:
            ValueError: if there is no such head.
        """
        gone = {int(head) for head in ablated}
        if not gone <= set(range(len(self.costs))):
            raise ValueError(
                f"heads are numbered 0 to {len(self.costs) - 1}, but "
                f"{sorted(gone)} were removed"
            )
        first, second = (head not in gone for head in self.pair)
        third = min(set(range(len(self.costs))) - {*self.pair})
        copies = {
            "first": first,
            "second": second,
            "either": first or second,
            "together": first and second,
            "another": third not in gone,
        }[self.reason]
        if not copies:
            return self.chance
        return 0.98 - sum(self.costs[head] for head in gone)


def copying_heads(model: Callable, weights: Sequence[float]) -> int:
    """Return which of two heads copies, as the number of an explanation.

    0: only the first. 1: only the second. 2: each of them, and one is enough.
    3: both together. 4: another head.

    Args:
        model: from the removed heads to the share of symbols copied correctly.
        weights: each head's weight on the symbol; exactly two are over 0.9.
    """
    first, second = (h for h, weight in enumerate(weights) if weight > 0.9)
    fails = tuple(
        model(ablated) < 0.5 for ablated in ({first}, {second}, {first, second})
    )
    explanations = {  # without the first, without the second, without both
        (True, False, True): 0,
        (False, True, True): 1,
        (False, False, True): 2,
        (True, True, True): 3,
    }
    return explanations.get(fails, 4)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each explanation, in any order, for several numbers of heads."""

    def number(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=rng))

    cases = []
    for heads in 4, 8, 6:
        order = torch.randperm(len(EXPLANATIONS), generator=rng)
        for reason in (EXPLANATIONS[i] for i in order):
            chosen = torch.randperm(heads, generator=rng)[:2].sort().values
            first, second = chosen.tolist()
            costs = tuple(number(0.01, 0.05) for _ in range(heads))
            weights = [number(0.0, 0.4) for _ in range(heads)]
            for head in first, second:
                weights[head] = number(0.91, 1.0)
            model = CopyingModel(reason, (first, second), costs, number(0.03, 0.2))
            what = {
                "first": "the first of two heads copies",
                "second": "the second of two heads copies",
                "either": "either of two heads copies",
                "together": "two heads are needed together",
                "another": "a third head copies",
            }[reason]
            cases.append(
                Case(
                    f"with a model of {heads} heads, in which {what}",
                    (model, weights),
                )
            )
    return tuple(cases)


def make_design(
    *,
    ablations: Callable = lambda a, b, H: ({a}, {b}, {a, b}),
    fails: Callable = lambda accuracy: accuracy < 0.5,
    table: dict | None = None,
    otherwise: int = 4,
):
    """Return a design with other ablations, or another reading of them."""

    def answer(model, weights):
        H = len(weights)
        a, b = (h for h in range(H) if weights[h] > 0.9)
        found = tuple(fails(model(gone)) for gone in ablations(a, b, H))
        return (table or TABLE).get(found, otherwise)

    return answer


check_copying_heads = Exercise(
    title="ablations that show which head copies",
    stars=3,
    minutes=20,
    section="Ablation: which head copies which symbol?",
    solution=copying_heads,
    returns=("explanation",),
    draw=draw,
    mistakes=(
        Mistake(
            "weights-only",
            "the larger weight decides",
            "it looks only at the weights. Both heads attend to the symbol, "
            "and that does not show whether their outputs are used",
            lambda model, weights: int(
                max(range(len(weights)), key=weights.__getitem__)
                != next(h for h, w in enumerate(weights) if w > 0.9)
            ),
        ),
        Mistake(
            "one-at-a-time",
            "heads removed one at a time only",
            "it removes one head at a time. If nothing fails, either head may "
            "take over for the other, or neither copies; remove both as well",
            make_design(
                ablations=lambda a, b, H: ({a}, {b}),
                table={
                    (True, False): 0,
                    (False, True): 1,
                    (False, False): 2,
                    (True, True): 3,
                },
            ),
        ),
        Mistake(
            "one-at-a-time-unused",
            "two spare heads taken for unused ones",
            "it removes one head at a time and concludes that neither copies "
            "if each can be removed alone; remove both as well",
            make_design(
                ablations=lambda a, b, H: ({a}, {b}),
                table={
                    (True, False): 0,
                    (False, True): 1,
                    (True, True): 3,
                },
            ),
        ),
        Mistake(
            "both-at-once",
            "only both heads removed",
            "it removes both heads at once only. If the model fails, this "
            "does not show which of them was needed",
            make_design(ablations=lambda a, b, H: ({a, b},), table={(True,): 3}),
        ),
        Mistake(
            "first-only",
            "second head not removed alone",
            "it never removes the second head alone. If the model fails "
            "without the first one, it cannot tell whether the second one is "
            "needed as well",
            make_design(
                ablations=lambda a, b, H: ({a}, {a, b}),
                table={(True, True): 0, (False, True): 1},
            ),
        ),
        Mistake(
            "any-drop",
            "every drop counts as failure",
            "it takes every drop of the accuracy for a failure. Removing any "
            "head costs a little; a head that copies costs almost everything",
            make_design(fails=lambda accuracy: accuracy < 0.97),
        ),
        Mistake(
            "zero-accuracy",
            "failure means accuracy 0",
            "it waits for an accuracy of 0, but guessing is sometimes right",
            make_design(fails=lambda accuracy: accuracy == 0),
        ),
        Mistake(
            "kept-alone",
            "all other heads removed as well",
            "it keeps one head at a time and removes all others, so it also "
            "removes a third head that may copy",
            make_design(
                ablations=lambda a, b, H: (
                    set(range(H)) - {a},
                    set(range(H)) - {b},
                ),
                table={
                    (False, True): 0,
                    (True, False): 1,
                    (False, False): 2,
                    (True, True): 3,
                },
            ),
        ),
        Mistake(
            "swapped",
            "first and second head confused",
            "it confuses the two heads: if the model fails without the first "
            "head, the first one copies",
            lambda model, weights: {0: 1, 1: 0}.get(
                found := copying_heads(model, weights), found
            ),
        ),
        Mistake(
            "redundant-and-needed-swapped",
            "spare and needed heads confused",
            "it confuses explanations 2 and 3: if the model fails without "
            "either one, both are needed",
            lambda model, weights: {2: 3, 3: 2}.get(
                found := copying_heads(model, weights), found
            ),
        ),
    ),
)
