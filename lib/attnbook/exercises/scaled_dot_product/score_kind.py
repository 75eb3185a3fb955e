"""Exercise: design keys that tell by which score a function attends.

Source: the three scores are compared in the chapter
Axes: S keys, D width of query and key
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import shuffle_cases

KINDS = ("dot product", "cosine", "distance", "slot", "longest", "shortest")


@dataclass(frozen=True)
class ScoreModel:
    """A function that weighs keys, by one of several scores.

    Called with query (D,) and key (S, D), it returns weights (S,).

    Attributes:
        kind: one of `KINDS`; the last three ignore the query.
        temperature: divides the scores.
        always: the slot with the largest weight, for the kind "slot".
    """

    kind: str
    temperature: float = 1.0
    always: int = 0

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the weight of each key."""
        slots = torch.arange(len(key), device=key.device)
        scores = {
            "dot product": lambda: key @ query,
            "cosine": lambda: F.cosine_similarity(key, query[None], dim=-1),
            "distance": lambda: -(key - query).square().sum(-1) / 2,
            "slot": lambda: (slots == self.always % len(key)).to(key),
            "longest": lambda: key.norm(dim=-1),
            "shortest": lambda: -key.norm(dim=-1),
        }[self.kind]()
        return (scores / self.temperature).softmax(-1)


def score_kind(weigh: Callable, D: int) -> int:
    """Return by which score a function weighs keys: 0, 1, 2 or 3.

    0: dot product. 1: cosine similarity. 2: distance. 3: none of these.

    Args:
        weigh: (query (D,), key (S, D)) to weights (S,).
        D: the width of query and keys, at least 2.
    """
    query, key = torch.zeros(D), torch.zeros(3, D)
    query[0] = 1.0
    key[0, :2] = torch.tensor([0.9, 0.3])  # nearest to the query
    key[1, :2] = torch.tensor([0.5, 0.0])  # in the same direction
    key[2, :2] = torch.tensor([2.0, 2.0])  # largest dot product
    found = [int(weigh(q, key).argmax()) for q in (query, -query)]
    predicted = [2, 1], [1, 2], [0, 1]
    return predicted.index(found) if found in predicted else 3


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each kind, in any order, at several widths and temperatures."""
    cases = []
    for width in (2, 3, 8):
        for kind in KINDS:
            temperature = 0.2 + float(torch.rand((), generator=rng))
            slots = range(3) if kind == "slot" else (0,)
            for always in slots:
                what = f"a function that {describe_kind(kind)}"
                cases.append(
                    Case(
                        f"with width {width} and {what}",
                        (ScoreModel(kind, temperature, always), width),
                    )
                )
    return shuffle_cases(tuple(cases), rng)


def describe_kind(kind: str) -> str:
    """Return what a function of some kind does."""
    return {
        "slot": "prefers one position in the list of keys",
        "longest": "prefers the longest key",
        "shortest": "prefers the shortest key",
    }.get(kind, f"weighs by {kind}")


def make_design(
    *keys: tuple[float, float],
    predicted: tuple = ([2, 1], [1, 2], [0, 1]),
    signs: tuple[int, ...] = (1, -1),
    none: int = 3,
):
    """Return an experiment with other keys, queries or predictions."""

    def answer(weigh, D):
        query, key = torch.zeros(D), torch.zeros(len(keys), D)
        query[0] = 1.0
        key[:, :2] = torch.tensor(keys)
        found = [int(weigh(s * query, key).argmax()) for s in signs]
        return predicted.index(found) if found in predicted else none

    return answer


OURS = (0.9, 0.3), (0.5, 0.0), (2.0, 2.0)

check_score_kind = Exercise(
    title="an experiment that separates three scores",
    stars=3,
    minutes=20,
    section="Kernel regression is attention",
    solution=score_kind,
    returns=("kind",),
    draw=draw,
    mistakes=(
        Mistake(
            "unit-keys",
            "all keys have length 1",
            "its keys have length 1, like the query. For such keys the dot "
            "product, the cosine and the distance prefer the same key",
            make_design((1.0, 0.0), (0.6, 0.8), (0.0, 1.0), predicted=([0, 2],)),
        ),
        Mistake(
            "one-query",
            "only one query",
            "it tries only one query. A function that ignores the query and "
            "prefers one of the keys then looks like one of the three",
            make_design(*OURS, predicted=([2], [1], [0]), signs=(1,)),
        ),
        Mistake(
            "one-direction",
            "all keys in the query's direction",
            "its keys all have the query's direction, so that their cosines "
            "are equal and rounding decides",
            make_design(
                (1.0, 0.0),
                (0.5, 0.0),
                (2.0, 0.0),
                predicted=([2, 1], [0, 0], [0, 1]),
            ),
        ),
        Mistake(
            "no-distance",
            "distance not considered",
            "it makes no prediction for the distance, so it cannot recognize "
            "a function that weighs by distance",
            make_design((0.5, 0.0), (2.0, 2.0), predicted=([1, 0], [0, 1])),
        ),
        Mistake(
            "dot-and-cosine",
            "dot product and cosine swapped",
            "its predictions for the dot product and the cosine are swapped: "
            "only the dot product grows with the length of a key",
            make_design(*OURS, predicted=([1, 2], [2, 1], [0, 1])),
        ),
        Mistake(
            "cosine-and-distance",
            "cosine and distance swapped",
            "its predictions for the cosine and the distance are swapped: the "
            "cosine compares directions only",
            make_design(*OURS, predicted=([2, 1], [0, 1], [1, 2])),
        ),
        Mistake(
            "no-negative",
            "no answer for other functions",
            "it never returns 3: if no prediction fits, none of the three "
            "scores was used",
            make_design(*OURS, none=0),
        ),
        Mistake(
            "always-dot",
            "the function is not run",
            "it does not run the given function",
            lambda weigh, D: 0,
        ),
        Mistake(
            "always-none",
            "3 for every function",
            "it returns 3, whatever it is given; the three scores are 0, 1 and 2",
            lambda weigh, D: 3,
        ),
        Mistake(
            "equal-key-wins",
            "the equal key expected to have the largest dot product",
            "it expects that the key that is equal to the query has the "
            "largest dot product; a longer key can have a larger one",
            make_design(
                (1.0, 0.0),
                (0.5, 0.0),
                (2.0, 2.0),
                predicted=([0, 1], [1, 2], [2, 0]),
            ),
        ),
    ),
)
