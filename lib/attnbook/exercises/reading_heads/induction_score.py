"""Exercise: the induction score of each head.

Source: induction heads: Elhage et al. (2021),
    https://transformer-circuits.pub/2021/framework/index.html; Olsson et al.
    (2022), https://arxiv.org/abs/2209.11895
Axes: H heads, T positions
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.diagnose.heads import (
    mark_duplicate_tokens,
    mark_induction,
    score_induction,
    score_pattern,
)
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal


def induction_score(
    weights: Float[Tensor, "H T T"], ids: Int[Tensor, " T"]
) -> Float[Tensor, " H"]:
    """Return each head's mean weight on what followed the same token before.

    Args:
        weights: of each head.
        ids: the tokens.
    """
    return score_pattern(weights, mark_induction(ids))


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One repeated token; a repeated block; then what hides a mistake."""

    def case(tries: str, ids: Tensor, heads: int = 3, causal: bool = True) -> Case:
        scores = 2 * draw_normal(rng, heads, len(ids), len(ids))
        future = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
        if causal:
            scores = scores.masked_fill(future, -torch.inf)
        return Case(tries, (scores.softmax(-1), ids))

    block = torch.randperm(50, generator=rng)[:6]
    often = draw_integers(rng, 0, 3, 17)
    return (
        case("with one repeated token", torch.tensor([5, 8, 5]), 1),
        case("with a block repeated once", block.repeat(2)),
        case("with a block repeated twice", block.repeat(3), 2),
        case("with four different tokens", often, 4),
        case("with the same token everywhere", torch.full((5,), 7), 2),
        case("with a token repeated directly", torch.tensor([3, 9, 9, 3])),
        case("without a repeated token", torch.randperm(7, generator=rng)),
        case("with as many heads as positions", draw_integers(rng, 0, 2, 5), 5),
        case("with weights on later positions", block.repeat(3), 2, False),
    )


def mark_most_recent(ids: Tensor) -> Tensor:
    """Return True only after the last earlier occurrence of a token."""
    marked = mark_induction(ids)
    return marked & (marked.cumsum(-1) == marked.sum(-1, keepdim=True))


def mark_oldest(ids: Tensor) -> Tensor:
    """Return True only after the first occurrence of a token."""
    marked = mark_induction(ids)
    return marked & (marked.cumsum(-1) == 1)


def mark_token_before(ids: Tensor) -> Tensor:
    """Return True before an earlier occurrence of the token."""
    earlier = mark_duplicate_tokens(ids)
    return torch.cat([earlier[:, 1:], torch.zeros_like(earlier[:, :1])], 1)


def mark_next_token(ids: Tensor) -> Tensor:
    """Return True at earlier occurrences of the token that comes next."""
    following = torch.cat([ids[1:], ids[:1] - ids.max() - 1])
    return (following[:, None] == ids).tril(-1)


def score_later(weights: Tensor, ids: Tensor) -> Tensor:
    """Return the mean weight after other occurrences, later ones too."""
    same = (ids[:, None] == ids).fill_diagonal_(False)
    marked = torch.cat([torch.zeros_like(same[:, :1]), same[:, :-1]], 1)
    scored = mark_induction(ids).any(-1)
    total = (weights * marked)[:, scored].sum((1, 2))
    return total / scored.sum().clamp(min=1)


def average_over_keys(weights: Tensor, ids: Tensor) -> Tensor:
    """Return the mean weight of one marked key."""
    marked = mark_induction(ids)
    return (weights * marked).sum((1, 2)) / marked.sum().clamp(min=1)


def divide_by_none(weights: Tensor, ids: Tensor) -> Tensor:
    """Return the mean over an empty set where no token is repeated."""
    marked = mark_induction(ids)
    return (weights * marked).sum((1, 2)) / marked.any(-1).sum()


def count_largest(weights: Tensor, ids: Tensor) -> Tensor:
    """Return how often the largest weight is on a marked key."""
    one = torch.zeros_like(weights)
    one.scatter_(-1, weights.argmax(-1, keepdim=True), 1.0)
    return score_induction(one, ids)


MARKED = "mark_induction(ids)"
SCORE = f"score_pattern(weights, {MARKED})"

check_induction_score = Exercise(
    title="the induction score of each head",
    stars=2,
    minutes=15,
    section="What do heads do? Scores on controlled inputs",
    solution=induction_score,
    helpers=(score_pattern, mark_induction, mark_duplicate_tokens),
    returns=("scores",),
    draw=draw,
    key_line="return torch.cat([first, earlier[:, :-1]], dim=1)",
    allowed="Everything in PyTorch is allowed; `attnbook.diagnose` has the "
    "answer in it.",
    mistakes=(
        Mistake(
            "earlier-token-itself",
            "weight on the earlier occurrence itself",
            "the weight on earlier occurrences of the token is counted, which "
            "is the duplicate-token score; the position after each earlier "
            "occurrence counts",
            "mark_induction → mark_duplicate_tokens",
        ),
        Mistake(
            "token-before",
            "weight on the position before",
            "the weight on the position before an earlier occurrence is "
            "counted; it should be the position after it",
            "mark_induction → mark_token_before",
        ),
        Mistake(
            "most-recent-only",
            "only the last earlier occurrence",
            "only the last earlier occurrence counts; the weights on the "
            "positions after all earlier occurrences should be added",
            "mark_induction → mark_most_recent",
        ),
        Mistake(
            "first-only",
            "only the first occurrence",
            "only the first occurrence counts; the weights on the positions "
            "after all earlier occurrences should be added",
            "mark_induction → mark_oldest",
        ),
        Mistake(
            "transposed",
            "queries and keys swapped",
            "the axes of queries and keys are swapped: `weights[h, t, s]` is "
            "the weight that position t gives to position s",
            "weights, → weights.mT,",
        ),
        Mistake(
            "all-positions-in-mean",
            "mean over all positions",
            "the sum is divided by the number of all positions; only those "
            "count whose token occurred before",
            f"{SCORE} → (weights * {MARKED}).sum((1, 2)) / len(ids)",
        ),
        Mistake(
            "mean-over-keys",
            "mean over keys",
            "the sum is divided by the number of marked keys. The weights of "
            "one query should be added, and the mean taken over queries",
            average_over_keys,
        ),
        Mistake(
            "no-mean",
            "sum instead of mean",
            "the weights of all positions are added; return their mean over "
            "the positions whose token occurred before",
            f"{SCORE} → (weights * {MARKED}).sum((1, 2))",
        ),
        Mistake(
            "empty-mean",
            "NaN without a repeated token",
            "the mean is taken over no position at all where no token is "
            "repeated; the score should then be 0",
            divide_by_none,
        ),
        Mistake(
            "own-position-left-out",
            "own position left out",
            "a position's weight on itself is left out. After a token that is "
            "repeated directly, the position itself follows an earlier "
            "occurrence",
            f"{MARKED} → {MARKED}.tril(-1)",
        ),
        Mistake(
            "later-occurrences",
            "later occurrences counted",
            "the weights on positions after later occurrences are counted as "
            "well; only earlier occurrences should count",
            score_later,
        ),
        Mistake(
            "next-token-looked-up",
            "token that comes next looked up",
            "the weight on earlier occurrences of the token that comes next is "
            "counted. A causal head cannot know that token; look up the "
            "current one, and shift by one position",
            "mark_induction → mark_next_token",
        ),
        Mistake(
            "heads-averaged",
            "heads averaged first",
            "the heads are averaged before they are scored, so that all get "
            "the same score",
            "weights, → weights.mean(0, keepdim=True).expand_as(weights),",
        ),
        Mistake(
            "largest-weight",
            "only the largest weight",
            "it counts how often the largest weight is on such a position; the "
            "score is the mean of the weights themselves",
            count_largest,
        ),
    ),
)
