"""Exercise: design a sequence that shows what an attention head looks for.

Source: induction heads and the control by repeated random tokens: Olsson et al.
    (2022), https://arxiv.org/abs/2209.11895; duplicate-token heads: Wang et al.
    (2022), https://arxiv.org/abs/2211.00593
Axes: T positions
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases

KINDS = (
    "the token after the same token",
    "the same token",
    "a fixed distance",
    "the token after the same two tokens",
    "position 0",
)
FARTHEST, SYMBOLS, LONGEST = 12, 100, 64


@dataclass(frozen=True)
class Head:
    """A causal head that attends to one position, by one of five rules.

    Called with token ids, it returns for each position the position with the
    largest weight. Where the rule finds none, that is position 0.

    Attributes:
        kind: one of `KINDS`.
        distance: how far back the head attends at a fixed distance.
    """

    kind: str
    distance: int

    def __call__(self, ids: Sequence[int]) -> list[int]:
        """Return the position that each position attends to.

        Raises:
            ValueError: if there are too many ids, or one is no token.
        """
        ids = [int(x) for x in ids]
        if len(ids) > LONGEST or not {*ids} <= set(range(SYMBOLS)):
            raise ValueError(
                f"a head gets at most {LONGEST} ids from 0 to {SYMBOLS - 1}, "
                f"but these are {len(ids)} ids: {ids[:8]}"
            )
        return [self.find_position(ids, t) for t in range(len(ids))]

    def find_position(self, ids: list[int], t: int) -> int:
        """Return the position that position t attends to."""
        number = KINDS.index(self.kind)
        if number == 2:
            return max(t - self.distance, 0)
        if number == 4:
            return 0
        same = [s for s in range(t) if ids[s] == ids[t]]
        if number == 3:
            same = [s for s in same if s and ids[s - 1] == ids[t - 1]]
        return max(same, default=-1 + (number == 1)) + (number != 1)


def head_kind(head: Callable, ids: Sequence[int]) -> int:
    """Return by which rule a head attends: 0 to 4.

    0: to the position after the last earlier occurrence of the token
    (induction). 1: to the last earlier occurrence of the token. 2: at a fixed
    distance of 1 to 12. 3: to the position after the last earlier occurrence of
    the token together with the token before it. 4: always to position 0. All
    heads attend to position 0 where their rule finds nothing.

    Args:
        head: from ids (at most 64 of them, from 0 to 99) to the position that
            each position attends to.
        ids: an example.
    """
    # Token 1 is repeated after another token, and 2, 3 as a pair; the gaps
    # differ. The last position is more than 12 positions from the start.
    found = head([9, 1, 2, 3, 1, 5, 6, 2, 3, *range(20, 30)])
    rules = {(2, 3, 4): 0, (1, 2, 3): 1, (0, 0, 4): 3}
    seen = found[4], found[7], found[8]
    return rules.get(seen, 2 if found[-1] else 4)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each rule with a repeated block, and several distances, in any order."""

    def case(number: int, distance: int, block: int) -> Case:
        ids = torch.randperm(SYMBOLS, generator=rng)[:block].tolist()
        words = f" of {distance}" if number == 2 else ""
        tries = f"with a head that attends to {KINDS[number]}{words}"
        tries = tries.replace("attends to a fixed", "attends at a fixed")
        return Case(tries, (Head(KINDS[number], distance), 2 * ids))

    def size(low: int, high: int) -> int:
        return int(draw_integers(rng, low, high, 1))

    block, far = size(5, 8), size(9, FARTHEST)
    cases = [case(n, 1, size(5, 8)) for n in (1, 3, 4, 0, 1, 3, 4)]
    cases += [case(2, d, size(5, 8)) for d in (1, 2, 3, 4, far)]
    cases += [case(2, block - 1, block), case(2, block, block)]
    return shuffle_cases((case(0, 1, 6), *cases), rng)


OTHERS = tuple(range(20, 30))  # tokens that occur once
Design = tuple[Sequence[int], Sequence[int]]  # ids, and the positions compared


def make_design(
    *designs: Design,
    order: tuple[int, ...] = (0, 1, 3, 4, 2),
    otherwise: int = 0,
):
    """Return a design with other sequences.

    Args:
        *designs: ids and the positions that are compared with each rule's;
            without any, the example and all of its positions.
        order: in which the rules are tried; the first that fits is the answer.
        otherwise: the answer if no rule fits.
    """

    def fits(head: Callable, rule: Head, used: Sequence[Design]) -> bool:
        return all(
            [head(ids)[t] for t in places] == [rule(ids)[t] for t in places]
            for ids, places in used
        )

    def answer(head, ids):
        used = designs or [(ids, range(len(ids)))]
        for kind in order:
            for distance in range(1, FARTHEST + 1):
                if fits(head, Head(KINDS[kind], distance), used):
                    return kind
        return otherwise

    return answer


GOOD: Design = (9, 1, 2, 3, 1, 5, 6, 2, 3, *OTHERS), (4, 7, 8, 18)

check_head_kind = Exercise(
    title="a sequence that shows what a head looks for",
    stars=3,
    minutes=20,
    section="What do heads do? Scores on controlled inputs",
    solution=head_kind,
    returns=("kind",),
    draw=draw,
    key_line="seen = found[4], found[7], found[8]",
    mistakes=(
        Mistake(
            "example-only",
            "only the example tried",
            "it tries only the given block, repeated once. There, a head at a "
            "fixed distance may attend as a duplicate-token head or an "
            "induction head does; vary the distance of repeated tokens",
            make_design(),
        ),
        Mistake(
            "one-gap",
            "all repeated tokens at one distance",
            "it repeats a block of its own, so that all repeated tokens have "
            "the same distance. There, a head at a fixed distance may attend "
            "as a duplicate-token head or an induction head does; vary the "
            "distance",
            make_design(((1, 2, 3, 4, 1, 2, 3, 4), (4, 5, 6, 7))),
        ),
        Mistake(
            "one-query",
            "one repeated token only",
            "it compares only one position, at which several rules point to "
            "the same place",
            make_design((GOOD[0], (4,))),
        ),
        Mistake(
            "repeated-directly",
            "token repeated directly",
            "it repeats a token directly. The earlier occurrence is then also "
            "the token before, and the position after it is the query itself",
            make_design(((9, 1, 1, 5, 2, 2, *OTHERS), (2, 5))),
        ),
        Mistake(
            "pairs-only",
            "only whole pairs repeated",
            "it repeats tokens only together with the token before them. Rules "
            "0 and 3 then point to the same position; repeat a token after "
            "another one",
            make_design(
                (
                    (9, 1, 2, 3, 5, 6, 7, 1, 2, 3, 8, 1, 2, *OTHERS),
                    (8, 9, 12, 22),
                )
            ),
        ),
        Mistake(
            "no-pair",
            "no pair repeated",
            "it never repeats a token together with the token before it. A "
            "head of rule 3 then attends to position 0 as one of rule 4 does",
            make_design(
                ((9, 1, 2, 3, 1, 5, 6, 2, *OTHERS), (4, 7, 17)),
                order=(0, 1, 4, 3, 2),
            ),
        ),
        Mistake(
            "too-short",
            "sequence too short",
            "its sequence is too short: a head at a distance of 12 attends to "
            "position 0 as long as no position is farther from the start",
            make_design((GOOD[0][:9], (4, 7, 8))),
        ),
        Mistake(
            "repetition-not-compared",
            "only tokens compared that occur once",
            "it compares only positions whose token did not occur before. "
            "There, all rules but the fixed distance point to position 0",
            make_design((GOOD[0], (3, 6, 18)), order=(4, 0, 1, 3, 2)),
        ),
        Mistake(
            "no-other-rule",
            "every head without repetition at a fixed distance",
            "it takes every head that does not look for a repetition for one "
            "at a fixed distance; rule 4 attends to position 0 at every "
            "position",
            make_design(GOOD, order=(0, 1, 3, 2), otherwise=2),
        ),
        Mistake(
            "induction-and-duplicate-swapped",
            "induction and duplicate token confused",
            "it confuses rules 0 and 1: an induction head attends to the "
            "position after the earlier occurrence",
            renumber(head_kind, {0: 1, 1: 0}),
        ),
        Mistake(
            "one-and-two-tokens-swapped",
            "one and two tokens confused",
            "it confuses rules 0 and 3: after another token than before, only "
            "rule 0 finds the repeated token",
            renumber(head_kind, {0: 3, 3: 0}),
        ),
        Mistake(
            "counted-from-one",
            "rules counted from 1",
            "its numbers are one too high: the first rule is 0",
            lambda *given: head_kind(*given) + 1,
        ),
        Mistake(
            "always-induction",
            "head not run",
            "it returns 0 without running the head",
            lambda head, ids: 0,
        ),
    ),
)
