"""Exercise: heads that share keys and values.

Source: Ainslie et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245
Axes: B batch, H heads, G groups, T queries, S keys, D width of query and key,
    E value width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half
from attnbook.exercises.multi_head.multi_head import average_values
from attnbook.exercises.self_attention.cross_attention import (
    ALLOWED,
    mask_future,
)


def grouped_query(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
) -> Float[Tensor, "B H T E"]:
    """Return attention in which H / G consecutive heads share a group."""
    each = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(each, dim=1)
    value = value.repeat_interleave(each, dim=1)
    return attend(query, key, value)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; one group; then several; then what hides a mistake."""

    def inputs(b, h, g, t, s, d, e):
        return (
            draw_normal(rng, b, h, t, d),
            draw_normal(rng, b, g, s, d),
            draw_normal(rng, b, g, s, e),
        )

    usual = inputs(2, 6, 2, 3, 5, 7, 11)
    loud = tuple(x * 6 for x in inputs(2, 6, 3, 5, 7, 3, 2))
    return (
        Case("with one head and one key", inputs(1, 1, 1, 1, 1, 2, 3)),
        Case("with a group for each head", inputs(2, 3, 3, 2, 5, 7, 11)),
        Case("with one group", inputs(2, 3, 1, 2, 5, 7, 11)),
        Case("with 6 heads in 2 groups", usual, gradient=True),
        Case("with 4 heads in 2 groups", inputs(1, 4, 2, 5, 3, 2, 7)),
        Case("with everything equal", inputs(4, 4, 2, 4, 4, 4, 4)),
        Case("with large scores", loud),
        Case("in double precision", to_double(usual), asked=False),
        Case(
            "in half precision",
            to_half(inputs(2, 6, 3, 3, 5, 2, 7)),
            asked=False,
        ),
    )


def change_groups(
    key_for: Callable | None = None, value_for: Callable | None = None, **more
) -> Callable:
    """Return grouped attention with a part of it exchanged.

    Args:
        key_for: makes a key for each head, from (B, G, S, D) and H.
        value_for: makes a value for each head.
        **more: of `average_values`.
    """

    def answer(query, key, value):
        heads = query.shape[1]
        keys = (key_for or repeat_each_group)(key, heads)
        return average_values(
            query, keys, (value_for or repeat_each_group)(value, heads), **more
        )

    return answer


def repeat_each_group(x: Tensor, heads: int) -> Tensor:
    """Return each group's rows once for each of its heads, in a row."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def repeat_all_groups(x, heads):
    """Return the groups over and over: head h has group h mod G."""
    return x.repeat(1, heads // x.shape[1], 1, 1)


def average_queries(query, groups):
    """Return each group's mean query, once for each of its heads."""
    mean = query.unflatten(1, (groups, -1)).mean(2)
    return repeat_each_group(mean, query.shape[1])


check_grouped_query = Exercise(
    title="grouped-query attention",
    stars=2,
    minutes=15,
    section="Multi-query and grouped-query attention",
    solution=grouped_query,
    returns=("output",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "repeat",
            "`repeat` instead of `repeat_interleave`",
            "head h uses group h mod G, as `repeat` gives; consecutive heads "
            "should share a group, as `repeat_interleave` gives",
            change_groups(repeat_all_groups, repeat_all_groups),
        ),
        Mistake(
            "repeat-keys",
            "keys repeated in the wrong order",
            "the keys are repeated as by `repeat` and the values as by "
            "`repeat_interleave`; consecutive heads should share both",
            change_groups(repeat_all_groups),
        ),
        Mistake(
            "repeat-values",
            "values repeated in the wrong order",
            "the values are repeated as by `repeat` and the keys as by "
            "`repeat_interleave`; consecutive heads should share both",
            change_groups(value_for=repeat_all_groups),
        ),
        Mistake(
            "first-group-only",
            "first group for all heads",
            "every head uses the keys and values of the first group",
            change_groups(*2 * [lambda x, H: x[:, :1].expand(-1, H, -1, -1)]),
        ),
        Mistake(
            "groups-averaged",
            "groups averaged",
            "every head uses the mean of all groups; each should use its own group",
            change_groups(*2 * [lambda x, H: x.mean(1, True).expand(-1, H, -1, -1)]),
        ),
        Mistake(
            "backwards",
            "groups in reverse order",
            "the groups are in reverse order",
            change_groups(*2 * [lambda x, H: repeat_each_group(x, H).flip(1)]),
        ),
        Mistake(
            "queries-averaged",
            "queries of a group averaged",
            "the queries of a group are averaged; its heads share keys and "
            "values, but each has its own query",
            lambda q, k, v: change_groups()(average_queries(q, k.shape[1]), k, v),
        ),
        Mistake(
            "one-output-a-group",
            "one output per group",
            "there is one output for each group; there should be one for each head",
            lambda q, k, v: change_groups()(
                q.unflatten(1, (k.shape[1], -1)).mean(2), k, v
            ),
        ),
        Mistake(
            "no-scale",
            "no division by √D",
            "the scores are not divided by √D",
            change_groups(scale=lambda D, H: 1.0),
        ),
        Mistake(
            "scale-without-root",
            "division by D, not by √D",
            "the scores are divided by D; they should be divided by √D",
            change_groups(scale=lambda D, H: 1 / D),
        ),
        Mistake(
            "scale-by-model-width",
            "division by √(H·D), not by √D",
            "the scores are divided by √(H·D), the root of the model width; "
            "they should be divided by √D",
            change_groups(scale=lambda D, H: (D * H) ** -0.5),
        ),
        Mistake(
            "softmax-over-queries",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            change_groups(axis=-2),
        ),
        Mistake(
            "softmax-over-heads",
            "softmax over the heads",
            "the softmax runs over the heads; it should run over the keys",
            change_groups(axis=1),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "every key gets the same weight: the scores are not used",
            change_groups(scale=lambda D, H: 0.0),
        ),
        Mistake(
            "weights-averaged",
            "weights averaged over the heads",
            "all heads use the mean of the heads' weights; each should use its own",
            change_groups(then=lambda w: w.mean(1, keepdim=True).expand_as(w)),
        ),
        Mistake(
            "causal",
            "unneeded causal mask",
            "a query can attend only to keys up to its own position; the "
            "exercise has no mask",
            change_groups(bend=mask_future),
        ),
    ),
)
