"""Exercise: predict what three scores say about a head at a fixed distance.

Source: repeated blocks of random tokens: Olsson et al. (2022),
    https://arxiv.org/abs/2209.11895
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases


def score_counts(block: int, copies: int, before: int, distance: int) -> list[int]:
    """Return at how many positions a head attends where three scores look.

    The head gives all its weight to the position `distance` back, or to
    position 0 where there is none. The counts are, in this order: positions
    whose token occurred before; of these, positions at which the head attends
    to a token that followed an earlier occurrence (induction); of these,
    positions at which it attends to an earlier occurrence (duplicate token);
    and, of all positions, those at which it attends to the token before.

    Args:
        block: number of tokens in a block, all different.
        copies: how many times the block occurs, one after the other.
        before: number of other tokens before the first block, all different.
        distance: how far back the head attends; 0 is the position itself.
    """
    ids = [*range(-before, 0), *(copies * [*range(block)])]
    attended = [max(t - distance, 0) for t in range(len(ids))]
    earlier = [[s for s in range(t) if ids[s] == x] for t, x in enumerate(ids)]
    scored = [t for t, found in enumerate(earlier) if found]
    induction = sum(attended[t] - 1 in earlier[t] for t in scored)
    duplicate = sum(attended[t] in earlier[t] for t in scored)
    previous = sum(s == t - 1 for t, s in enumerate(attended))
    return [len(scored), induction, duplicate, previous]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """An induction score of 1; then other distances, copies and beginnings."""

    def size(low: int, high: int) -> int:
        return int(draw_integers(rng, low, high, 1))

    n, few = size(5, 9), size(3, 6)
    cases = (
        Case("with the distance of a block", (n, 2, 0, n)),
        Case("with tokens before the block", (n, 2, size(1, 4), n - 1)),
        Case("with three copies", (n, 3, size(1, 3), n - 1)),
        Case("with almost two blocks' distance", (4, size(4, 6), 1, 7)),
        Case("with two blocks' distance", (few, 4, 0, 2 * few)),
        Case("with the token before", (size(3, 6), 3, 2, 1)),
        Case("with its own position", (size(3, 6), 2, 1, 0)),
        Case("with blocks of one token", (1, size(5, 8), 0, 1)),
        Case("with blocks of one token after others", (1, size(4, 6), 2, 3)),
        Case("with blocks of two tokens", (2, size(4, 6), 1, 1)),
        Case("with a single block", (size(4, 8), 1, 1, 1)),
        Case("with a distance beyond the start", (4, 3, 0, size(15, 20))),
        Case("with a distance that fits nothing", (5, 3, 1, 7)),
    )
    first = Case("with the distance of an induction head", (4, 2, 0, 3))
    return shuffle_cases((first, *cases), rng)


EARLIER = "if ids[s] == x] for"


def count_every_later_copy(
    block: int, copies: int, before: int, distance: int
) -> list[int]:
    """Return the counts of a head that is right in all copies, or in none."""
    counts = score_counts(block, copies, before, distance)
    fits = counts[1] > 0, counts[2] > 0
    return [counts[0], *(counts[0] * int(x) for x in fits), counts[3]]


check_score_counts = Exercise(
    title="three scores of a head at a fixed distance",
    stars=2,
    minutes=20,
    section="What do heads do? Scores on controlled inputs",
    solution=score_counts,
    returns=("counts",),
    draw=draw,
    allowed="Everything is allowed; `attnbook.diagnose` has the answer in it.",
    key_line="induction = sum(attended[t] - 1 in earlier[t] for t in scored)",
    mistakes=(
        Mistake(
            "all-positions-scored",
            "all positions counted",
            "the first count is that of all positions; it should be that of "
            "the positions whose token occurred before",
            "if found] → if True]",
        ),
        Mistake(
            "one-block-scored",
            "only one repeated block counted",
            "the first count is at most one block; the tokens of every copy "
            "after the first occurred before",
            "len(scored) → min(len(scored), block)",
        ),
        Mistake(
            "swapped",
            "induction and duplicate tokens swapped",
            "the counts of induction and of duplicate tokens are swapped: an "
            "induction head attends to the token after the earlier occurrence",
            "induction, duplicate, → duplicate, induction,",
        ),
        Mistake(
            "token-before-the-earlier",
            "token before the earlier occurrence",
            "the position before an earlier occurrence is counted for "
            "induction; it should be the position after it",
            "attended[t] - 1 → attended[t] + 1",
        ),
        Mistake(
            "last-occurrence-only",
            "only the last earlier occurrence",
            "only the last earlier occurrence counts; all earlier occurrences should",
            f"{EARLIER} → if ids[s] == x][-1:] for",
        ),
        Mistake(
            "first-occurrence-only",
            "only the first occurrence",
            "only the first occurrence counts; all earlier occurrences should",
            f"{EARLIER} → if ids[s] == x][:1] for",
        ),
        Mistake(
            "all-copies-or-none",
            "right in all copies, or in none",
            "a distance that reaches an earlier copy is taken to be right at "
            "all positions. Copies near the start have fewer copies before "
            "them",
            count_every_later_copy,
        ),
        Mistake(
            "own-position",
            "own position as an earlier occurrence",
            "a position is counted as an earlier occurrence of its own token",
            "range(t) if → range(t + 1) if",
        ),
        Mistake(
            "start-forgotten",
            "start of the sequence forgotten",
            "positions with fewer positions before them than the distance are "
            "left out. There, the head attends to position 0, which may be one "
            "of those that count",
            "max(t - distance, 0) → t - distance if t >= distance else -9",
        ),
        Mistake(
            "position-0-has-one-before",
            "token before position 0",
            "position 0 is counted in the last count; it has no token before it",
            "s == t - 1 → s == max(t - 1, 0)",
        ),
        Mistake(
            "previous-of-scored",
            "last count of repeated tokens only",
            "the last count is limited to positions whose token occurred "
            "before; it should be that of all positions",
            "(attended)) → (attended) if t in scored)",
        ),
        Mistake(
            "tokens-before-ignored",
            "tokens before the block ignored",
            "the tokens before the first block are ignored. They are positions "
            "too, and the first of them is position 0",
            lambda block, copies, before, distance: score_counts(
                block, copies, 0, distance
            ),
        ),
        Mistake(
            "one-too-far",
            "distance one too large",
            "the head attends one position too far back: a distance of 1 is "
            "the token before",
            lambda block, copies, before, distance: score_counts(
                block, copies, before, distance + 1
            ),
        ),
    ),
)
