"""Exercise: design terms that explain why two runs of one sum differ.

Source: atomic additions in the backward pass: Dao (2023), section 3.2,
    https://arxiv.org/abs/2307.08691; the accumulator is ours
Axes: n terms, D entries of a term
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, shuffle_cases

REASONS = ("equal", "order", "race", "dropout")


@dataclass
class Accumulator:
    """Adds up the contributions of n programs, for instance to a gradient.

    Called with terms (n, D) and the number of a run, it returns their sum (D,)
    as this run computes it.

    Attributes:
        reason: one of `REASONS`.
        seed: of what differs from run to run.
    """

    reason: str
    seed: int

    def __call__(self, terms: Float[Tensor, "n D"], run: int) -> Tensor:
        """Return the sum of the terms."""
        rng = torch.Generator().manual_seed(1000 * self.seed + run)
        n = len(terms)
        order = torch.arange(n)
        if self.reason in ("order", "race"):
            order = torch.randperm(n, generator=rng)
        if self.reason == "race":  # some additions are overwritten
            lost = 1 + int(torch.randint(max(1, n // 4), (), generator=rng))
            order = order[lost:]
        if self.reason == "dropout":
            kept = torch.rand(n, generator=rng) >= 0.1
            terms = terms * kept[:, None] / 0.9
        total = torch.zeros_like(terms[0])
        for i in order.tolist():
            total = total + terms[i]
        return total


def run_difference(
    accumulators: tuple[Callable, ...], terms: Float[Tensor, "n D"]
) -> list[int]:
    """Return, for each accumulator, why two of its runs differ.

    0: they do not differ. 1: the terms are added in another order. 2: terms
    are lost, because two programs write to one place at the same time. 3:
    dropout with probability 0.1 is left on.

    Args:
        accumulators: each is called as (terms, run) and returns the sum (D,).
        terms: an example.
    """
    n, rng, found = len(terms), torch.Generator().manual_seed(0), []
    # Terms of very different size: rounding depends on the order.
    size = 10.0 ** torch.randint(-3, 4, (n, 16), generator=rng)
    rough = size * torch.randn(n, 16, generator=rng)
    for accumulate in accumulators:
        # Small integers: their sum has no rounding error in any order.
        ones = [accumulate(torch.ones(n, 1), i).item() for i in range(8)]
        if any(x != n for x in ones):
            found.append(2 if all(x == int(x) for x in ones) else 3)
            continue
        first, *others = (accumulate(rough, i) for i in range(8))
        found.append(int(any(not torch.equal(first, x) for x in others)))
    return found


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Every reason alone, then several of them, with several examples."""
    what = {
        "equal": "with an accumulator whose runs do not differ",
        "order": "with additions in another order",
        "race": "with terms that are lost",
        "dropout": "with dropout",
    }

    def case(tries: str, reasons: tuple[str, ...], n: int, kind: str) -> Case:
        terms = draw_normal(rng, n, 3)
        if kind != "normally distributed numbers":
            terms = torch.full_like(terms, float(kind == "ones"))
        seeds = torch.randint(1000, (len(reasons),), generator=rng).tolist()
        made = tuple(map(Accumulator, reasons, seeds))
        return Case(f"{tries}, on {n} terms; the example has {kind}", (made, terms))

    order = torch.randperm(len(REASONS), generator=rng).tolist()
    mixed = tuple(REASONS[i] for i in order)
    kinds = (12, "normally distributed numbers"), (16, "zeros"), (20, "ones")
    alone = [
        case(what[reason], (reason,), *kinds[nth % 3])
        for nth, reason in enumerate(REASONS)
    ]
    several = [
        case("with several accumulators", mixed[i:] + mixed[:i], *kinds[i])
        for i in range(2)
    ]
    return shuffle_cases((*alone, *several), rng)


def draw_numbers(n: int, width: int = 16) -> Tensor:
    """Return normal numbers of very different size."""
    rng = torch.Generator().manual_seed(2)
    size = 10.0 ** torch.randint(-3, 4, (n, width), generator=rng)
    return size * torch.randn(n, width, generator=rng)


def judge_by_tolerance(accumulators, terms):
    """Tell the kinds by the size of the difference."""
    found, tried = [], draw_numbers(len(terms))
    for accumulate in accumulators:
        sums = torch.stack([accumulate(tried, i) for i in range(8)])
        far = (sums - sums[0]).abs().max()
        found.append(0 if far == 0 else 1 if far < 1e-6 else 2)
    return found


def compare_with_own_sum(accumulators, terms):
    """Compare one run with a sum of one's own, on integers and on others."""
    found = []
    for accumulate in accumulators:
        ones = accumulate(torch.ones(len(terms), 1), 0).item()
        if ones != len(terms):
            found.append(2 if ones == int(ones) else 3)
            continue
        tried = draw_numbers(len(terms))
        own = torch.zeros_like(tried[0])
        for term in reversed(tried):
            own = own + term
        found.append(int(not torch.equal(accumulate(tried, 0), own)))
    return found


check_run_difference = Exercise(
    title="terms that explain why two runs differ",
    stars=3,
    minutes=20,
    section="A deterministic backward pass: seven products instead of five",
    solution=run_difference,
    key_line="ones = [accumulate(torch.ones(n, 1), i).item() for i in range(8)]",
    returns=("kinds",),
    draw=draw,
    mistakes=(
        Mistake(
            "example-only",
            "only the example is summed",
            "it sums only the example; zeros have the same sum in every run, "
            "and sums of normally distributed numbers are rounded, so that "
            "the right sum is not known exactly",
            (
                "torch.ones(n, 1) → terms[:, :1]",
                "x != n → x != terms[:, 0].sum().item()",
                "accumulate(rough, i) → accumulate(terms, i)",
            ),
        ),
        Mistake(
            "integers-only",
            "order not noticed",
            "it does not detect a changed order: compare several runs, on "
            "terms whose sum depends on the order (integers have the same sum "
            "in every order)",
            "accumulate(rough, i) → accumulate(torch.ones(n, 4), i)",
        ),
        Mistake(
            "rough-only",
            "no terms without rounding error",
            "it uses only terms whose sums are rounded, so every kind looks "
            "like another order; find terms that have the same sum in every "
            "order",
            "any(x != n for x in ones) → False",
        ),
        Mistake(
            "tolerance",
            "kinds told by the size of the difference",
            "it distinguishes the kinds by the size of the difference, which "
            "depends on the terms and not only on the kind",
            judge_by_tolerance,
        ),
        Mistake(
            "compared-with-own-sum",
            "compared with a sum of one's own",
            "it compares a run with a sum that it computes itself, in another "
            "order; compare runs with each other",
            compare_with_own_sum,
        ),
        Mistake(
            "below-means-lost",
            "dropout taken for lost terms",
            "it reports lost terms for every wrong sum of ones; dropout "
            "multiplies the terms that it keeps by 1/0.9, so most of its sums "
            "are not integers",
            "else 3 → else 2",
        ),
        Mistake(
            "never-lost",
            "lost terms taken for dropout",
            "it reports dropout for every wrong sum of ones; lost terms leave "
            "an integer",
            "append(2 if → append(3 if",
        ),
        Mistake(
            "swapped",
            "lost terms and dropout confused as kinds",
            "it confuses kinds 2 and 3, lost terms and dropout",
            ("append(2 if → append(3 if", "else 3 → else 2"),
        ),
    ),
)
