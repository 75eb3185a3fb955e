"""Exercise: design an experiment that separates the effects of two factors.

Two published decoders differ in their score and in when they attend. Which of
the two changes explains a difference in error?
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases

SCORES, ORDERS = ("additive", "dot"), ("before", "after")
CHANCE, EFFECT = 3, 5  # points: at most, at least
SEEDS = 40


@dataclass(frozen=True)
class Training:
    """The error of a decoder in percent, as a training run would find it.

    Attributes:
        base: error of the additive score before the step.
        score: what the dot score changes.
        order: what attention after the step changes.
        both: what only the two changes together add.
        salt: of chance.
    """

    base: float
    score: float = 0.0
    order: float = 0.0
    both: float = 0.0
    salt: int = 0

    def __call__(self, score: str, order: str, seed: int) -> float:
        """Return the error of one run.

        Raises:
            ValueError: if there is no such score or order.
        """
        for given, known in (score, SCORES), (order, ORDERS):
            if given not in known:
                raise ValueError(f"{given!r} is none of {known}")
        dot, after = score == "dot", order == "after"
        name = f"{self.salt} {score} {order} {int(seed)}".encode()
        number = int.from_bytes(hashlib.blake2b(name, digest_size=4).digest())
        return (
            self.base
            + dot * self.score
            + after * self.order
            + dot * after * self.both
            + CHANCE * (2 * number / 2**32 - 1)
        )


def compute_mean_error(error: Callable, score: str, order: str, seeds: int) -> float:
    """Return the mean error of some seeds."""
    return sum(error(score, order, n) for n in range(seeds)) / seeds


def find_explanation(
    means: Callable[[str, str], float], bound: float = EFFECT / 2
) -> int:
    """Return the number of the explanation that fits four mean errors."""
    change_before = means("dot", "before") - means("additive", "before")
    change_after = means("dot", "after") - means("additive", "after")
    if abs(change_after - change_before) > bound:
        return 4
    change_of_order = means("additive", "after") - means("additive", "before")
    return (abs(change_before) > bound) + 2 * (abs(change_of_order) > bound)


def two_factors(error: Callable) -> int:
    """Return what explains the errors of two decoders: 0, 1, 2, 3 or 4.

    0: neither change matters. 1: the score does. 2: when the decoder attends.
    3: both, each by itself. 4: only both together.

    Args:
        error: (score, order, seed) to the error of one run, in percent.
    """
    return find_explanation(
        lambda score, order: compute_mean_error(error, score, order, SEEDS)
    )


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each explanation with both signs, and two effects that cancel."""

    def size() -> float:
        return float(draw_integers(rng, EFFECT, 9))

    kinds = {
        "the score": {"score": size()},
        "the score, which helps": {"score": -size()},
        "the order": {"order": size()},
        "the order, which helps": {"order": -size()},
        "neither": {},
        "both": {"score": size(), "order": size()},
        "both, which cancel": {"score": 7.0, "order": -7.0},
        "the combination": {"both": size()},
        "the combination, which helps": {"both": -size()},
    }
    cases = []
    for what, effects in kinds.items():
        salt = int(draw_integers(rng, 0, 10**6))
        trained = Training(float(draw_integers(rng, 25, 50)), salt=salt, **effects)
        cases.append(Case(f"with a difference due to {what}", (trained,)))
    return shuffle_cases(tuple(cases), rng)


def compare_published(error) -> int:
    """Compare the two published decoders."""
    ends = [
        compute_mean_error(error, *pair, SEEDS)
        for pair in (("additive", "before"), ("dot", "after"))
    ]
    return 3 if abs(ends[0] - ends[1]) > EFFECT / 2 else 0


def change_one_at_a_time(score: str, order: str):
    """Change each factor alone, starting at one decoder."""

    def answer(error):
        def mean(*pair):
            return compute_mean_error(error, *pair, SEEDS)

        other_score = SCORES[score == SCORES[0]]
        other_order = ORDERS[order == ORDERS[0]]
        start = mean(score, order)
        found = mean(other_score, order), mean(score, other_order)
        matter = [abs(x - start) > EFFECT / 2 for x in found]
        return matter[0] + 2 * matter[1]

    return answer


def use_means(mean: Callable, number: Callable = lambda found: found):
    """Return the right design with other means, or other numbers."""
    return lambda error: number(find_explanation(lambda *pair: mean(error, *pair)))


def compute_right_mean(error, score, order):
    """Return the mean of all seeds."""
    return compute_mean_error(error, score, order, SEEDS)


check_two_factors = Exercise(
    title="an experiment with two factors",
    stars=3,
    minutes=20,
    section="Comparing one factor at a time",
    solution=two_factors,
    helpers=(compute_mean_error, find_explanation),
    returns=("explanation",),
    draw=draw,
    mistakes=(
        Mistake(
            "published-only",
            "only the two published decoders",
            "it compares only the two published decoders, which differ in both "
            "factors; train the two mixed ones as well",
            compare_published,
        ),
        Mistake(
            "one-seed",
            "only one seed",
            "it trains each decoder with one seed, and chance can change the "
            "error of a run by three points either way",
            use_means(lambda error, *pair: error(*pair, 0)),
        ),
        Mistake(
            "fourth-missing",
            "three of four decoders",
            "it starts from the decoder with “additive” and “before” and "
            "changes each factor alone, never both; an effect of both "
            "together is then missed",
            change_one_at_a_time("additive", "before"),
        ),
        Mistake(
            "from-the-other-end",
            "three of four decoders, from the other end",
            "it starts from the decoder with “dot” and “after” and changes "
            "each factor alone; an effect of both together then looks like "
            "two separate effects",
            change_one_at_a_time("dot", "after"),
        ),
        Mistake(
            "best-seed",
            "best of all seeds",
            "it takes the best seed of one decoder and means of the others; "
            "compare means of equally many seeds",
            use_means(
                lambda error, *pair: (
                    min(error(*pair, n) for n in range(SEEDS))
                    if pair == ("dot", "after")
                    else compute_right_mean(error, *pair)
                )
            ),
        ),
        Mistake(
            "only-improvements",
            "only improvements",
            "it counts only changes that lower the error; a change that raises "
            "it is an effect as well",
            lambda error: find_explanation(
                lambda *pair: min(
                    compute_right_mean(error, *pair),
                    compute_right_mean(error, "additive", "before"),
                )
            ),
        ),
        Mistake(
            "swapped",
            "score and order swapped",
            "the numbers of score and order are swapped",
            use_means(compute_right_mean, lambda found: (0, 2, 1, 3, 4)[found]),
        ),
        Mistake(
            "chance-as-effect",
            "chance taken for an effect",
            "it takes every difference for an effect, however small; means of "
            "a few seeds also differ by chance",
            lambda error: find_explanation(
                lambda *pair: compute_right_mean(error, *pair), bound=0.02
            ),
        ),
        Mistake(
            "counted-from-one",
            "explanations counted from 1",
            "its numbers are one too high: 0 means that neither change matters",
            use_means(compute_right_mean, lambda found: found + 1),
        ),
        Mistake(
            "always-both",
            "no run trained",
            "it does not train a decoder",
            lambda error: 3,
        ),
    ),
)
