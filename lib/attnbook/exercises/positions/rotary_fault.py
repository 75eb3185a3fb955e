"""Exercise: find out what is wrong with an implementation of RoPE, by tests.

Source: the faults are those of public implementations, linked in the chapter
Axes: T queries, S keys, D width of a head
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import describe_fault, list_number_mistakes
from attnbook.exercises.inputs import shuffle_cases
from attnbook.positions.absolute import frequencies
from attnbook.positions.rotary import apply_rotary, apply_rotary_halves

# What can be built into an implementation, and the number of its fault.
FAULTS = {
    "right": 0,
    "only queries rotated": 1,
    "only keys rotated": 1,
    "opposite directions": 2,
    "halves paired": 3,
    "positions clamped": 4,
    "positions ignored": 5,
}


@dataclass
class RotaryScores:
    """Scores of rotated queries and keys, with or without a fault.

    Called with query (T, D), key (S, D) and their positions (T,) and (S,), it
    returns the products (T, S), which are not divided by √D.

    Attributes:
        built_in: its fault, or "right".
        limit: to which positions are clamped, if this is its fault.
    """

    built_in: str
    limit: int = 511

    def rotate(
        self, x: Float[Tensor, "T D"], positions: Int[Tensor, "T"]
    ) -> Float[Tensor, "T D"]:
        """Return x rotated, as far as the fault allows."""
        theta = frequencies(x.shape[-1])
        if self.built_in == "positions ignored":
            positions = torch.zeros_like(positions)
        if self.built_in == "positions clamped":
            positions = positions.clamp(max=self.limit)
        angle = positions[:, None] * theta
        halves = self.built_in == "halves paired"
        return (apply_rotary_halves if halves else apply_rotary)(x, angle)

    def __call__(
        self,
        query: Float[Tensor, "T D"],
        key: Float[Tensor, "S D"],
        t: Int[Tensor, "T"],
        s: Int[Tensor, "S"],
    ) -> Float[Tensor, "T S"]:
        """Return the scores."""
        if self.built_in != "only keys rotated":
            query = self.rotate(query, t)
        if self.built_in != "only queries rotated":
            opposite = self.built_in == "opposite directions"
            key = self.rotate(key, -s if opposite else s)
        return query @ key.T


def rotary_fault(scores: Callable, D: int) -> int:
    """Return the number of an implementation's fault, 0 if there is none.

    1: only queries or only keys are rotated. 2: they are rotated in opposite
    directions. 3: halves are paired. 4: positions beyond a limit below 1000
    are clamped to it. 5: the positions are not used.

    Args:
        scores: (query, key, t, s) to the products (T, S).
        D: width of queries and keys, at least 4.
    """
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 1, D, generator=rng)
    first, second = torch.eye(D)[:2]

    def at(t: int, s: int, query: Tensor = x, key: Tensor = y) -> Tensor:
        places = torch.tensor([t]), torch.tensor([s])
        return scores(query.view(1, D), key.view(1, D), *places)

    def equal(a: Tensor, b: Tensor) -> bool:
        return torch.allclose(a, b, atol=1e-3)

    query_ignored = equal(at(0, 5), at(9, 5))
    key_ignored = equal(at(5, 0), at(5, 9))
    if query_ignored or key_ignored:
        return 5 if query_ignored and key_ignored else 1
    if equal(at(5, 2), at(2, 5)):  # it depends on t + s
        return 2
    if equal(at(1000, 0), at(1001, 0)):
        return 4
    # Column 0 is rotated into its partner: column 1, or column D / 2.
    return 3 if equal(at(1, 0, first, second), torch.zeros(1, 1)) else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right implementation first, then every fault, in any order."""
    cases = []
    for D in 4, 10:
        for kind in FAULTS:
            what = describe_fault(kind, FAULTS)
            limit = int(torch.randint(300, 900, (), generator=rng))
            inputs = RotaryScores(kind, limit), D
            cases.append(Case(f"with {what} and {D} columns", inputs))
    return shuffle_cases(tuple(cases), rng)


def check_only_equal_positions(scores, D):
    """Return a diagnosis that tries no distance."""
    x = torch.arange(1.0, D + 1).view(1, D)
    here = torch.tensor([3])
    right = (x @ x.T).item()
    return int(abs(scores(x, x, here, here).item() - right) > 1e-3)


def check_only_shift(scores, D):
    """Return a diagnosis that tests nothing but a common shift."""
    x = torch.arange(1.0, D + 1).view(1, D)
    one, other = (
        scores(x, x, torch.tensor([5 + n]), torch.tensor([2 + n])).item()
        for n in (0, 1000)
    )
    return int(abs(one - other) > 0.1)


check_rotary_fault = Exercise(
    title="the fault of an implementation of RoPE",
    stars=3,
    minutes=25,
    section="Pitfalls",
    solution=rotary_fault,
    key_line="query_ignored = equal(at(0, 5), at(9, 5))",
    returns=("fault",),
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "near-positions-only",
            "only small positions tried",
            "it tries only small positions; clamped positions are equal only "
            "beyond the limit",
            "at(1000, 0), at(1001, 0) → at(100, 0), at(101, 0)",
        ),
        Mistake(
            "layout-not-tested",
            "pairs of columns not tested",
            "it does not test which columns form a pair; with every pairing, "
            "the scores depend only on the distance. Try unit vectors",
            "return 3 if → return 0 if",
        ),
        Mistake(
            "one-side-only",
            "position of the query not tested",
            "it tests only whether the position of the key matters; the "
            "position of the query may be unused as well",
            "equal(at(0, 5), at(9, 5)) → False",
        ),
        Mistake(
            "equal-positions-only",
            "only equal positions tried",
            "it tries only queries and keys at the same position, where "
            "rotations cancel in every layout",
            check_only_equal_positions,
        ),
        Mistake(
            "shift-only",
            "only a common shift tried",
            "it only moves query and key together; this cannot show which "
            "columns form a pair, nor tell the other faults apart",
            check_only_shift,
        ),
        Mistake(
            "shift-first",
            "every change under a shift taken for opposite directions",
            "it concludes opposite directions from every change of the scores "
            "under a common shift; clamped positions change the scores as "
            "well",
            "equal(at(5, 2), at(2, 5)) → not equal(at(5, 2), at(1005, 1002))",
        ),
        Mistake(
            "exact-comparison",
            "scores compared exactly",
            "it compares scores exactly, and rounding makes equal scores "
            "differ in the last digits",
            "atol=1e-3 → rtol=0, atol=0",
        ),
        Mistake(
            "shapes-only",
            "only shapes compared",
            "it compares only shapes, which are right with each of these faults",
            lambda scores, D: int(
                scores(
                    torch.ones(2, D),
                    torch.ones(3, D),
                    torch.arange(2),
                    torch.arange(3),
                ).shape
                != (2, 3)
            ),
        ),
        *list_number_mistakes(rotary_fault),
    ),
)
