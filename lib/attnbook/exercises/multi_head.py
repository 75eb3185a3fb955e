"""The exercises of the chapter on multi-head attention.

Source: Vaswani et al. (2017), section 3.2.2, https://arxiv.org/abs/1706.03762;
    Ainslie et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245; heads that
    take over when others are removed: McGrath et al. (2023),
    https://arxiv.org/abs/2307.15771
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, C model width,
    D width of a head, E value width
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.multi_head import multi_head_loop
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.declare import Exercise


def multi_head(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "C C"],
    W_key: Float[Tensor, "C C"],
    W_value: Float[Tensor, "C C"],
    W_output: Float[Tensor, "C C"],
    heads: int,
) -> Float[Tensor, "B T C"]:
    """Return multi-head self-attention of x, (B, T, C)."""
    query, key, value = (
        (x @ W.T).unflatten(-1, (heads, -1)).transpose(1, 2)
        for W in (W_query, W_key, W_value)
    )
    merged = attend(query, key, value).transpose(1, 2).flatten(2)
    return merged @ W_output.T


def multi_head_cases(draw):
    def inputs(b, t, c, heads, size=1.5, dtype=torch.float32):
        matrices = (draw.normal(c, c, dtype=dtype) * size * c**-0.5 for _ in range(4))
        return draw.normal(b, t, c, dtype=dtype), *matrices, heads

    yield "with one head and one position", *inputs(1, 1, 3, 1)
    yield "with 3 heads of width 7", *inputs(2, 5, 21, 3)
    yield "with as many positions as heads", *inputs(2, 3, 15, 3)
    yield "with everything equal", *inputs(3, 3, 9, 3)
    yield "with heads of width 1", *inputs(2, 3, 5, 5)
    yield "with many positions", *inputs(3, 41, 33, 3)
    yield "with large scores", *inputs(2, 5, 14, 2, size=5.0)
    very = inputs(2, 5, 6, 2, size=50.0, dtype=torch.float64)
    yield "with very large scores", *very
    yield "in half precision", *inputs(2, 5, 6, 2, size=1.0, dtype=torch.float16)


ATTEND = "attend(query, key, value)"
SCORES = "(query @ key.mT / query.shape[-1] ** 0.5)"

check_multi_head = Exercise(
    multi_head,
    multi_head_cases,
    stars=2,
    minutes=20,
    section="The output projection",
    title="multi-head attention",
    returns=("output",),
    library=(multi_head_loop,),
    mistakes={
        "split-by-view": (
            "the heads are split by a reshape alone, which splits the positions",
            ".unflatten(-1, (heads, -1)).transpose(1, 2) "
            "→ .reshape(len(x), heads, x.shape[1], -1)",
        ),
        "merge-by-view": (
            "the heads are merged by a reshape alone; exchange two axes first",
            ".transpose(1, 2).flatten(2) → .reshape(x.shape)",
        ),
        "untransposed": (
            "the projections are applied as x @ W; it should be x @ W.T",
            ["x @ W.T → x @ W ; W_output.T → W_output", "x @ W.T → x @ W"],
        ),
        "no-scale": (
            "the scores are not divided by √D",
            f"{ATTEND} → attend(query, key, value, scale=1)",
        ),
        "softmax-over-heads": (
            "the softmax runs over the heads; it should run over the keys",
            f"{ATTEND} → ({SCORES}.softmax(1) @ value)",
        ),
        "softmax-over-queries": (
            "the softmax runs over the queries; it should run over the keys",
            f"{ATTEND} → ({SCORES}.softmax(-2) @ value)",
        ),
    },
    hints=(
        "Cut the last axis into heads first, then exchange two axes.",
        "The heads' queries are (B, H, T, D); merged, the columns of all heads are "
        "side by side.",
    ),
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


def grouped_query_cases(draw):
    def inputs(b, h, g, t, s, d, e, dtype=torch.float32):
        return (
            draw.normal(b, h, t, d, dtype=dtype),
            draw.normal(b, g, s, d, dtype=dtype),
            draw.normal(b, g, s, e, dtype=dtype),
        )

    yield "with one head and one key", *inputs(1, 1, 1, 1, 1, 2, 3)
    yield "with a group for each head", *inputs(2, 3, 3, 2, 5, 7, 11)
    yield "with one group", *inputs(2, 3, 1, 2, 5, 7, 11)
    yield "with 6 heads in 2 groups", *inputs(2, 6, 2, 3, 5, 7, 11)
    yield "with everything equal", *inputs(4, 4, 2, 4, 4, 4, 4)
    yield "with many positions", *inputs(2, 12, 4, 33, 41, 5, 3)
    yield "with large scores", *(x * 6 for x in inputs(2, 6, 3, 5, 7, 3, 2))
    yield "in half precision", *inputs(2, 6, 3, 3, 5, 2, 7, dtype=torch.float16)


def softmax_over_heads(axis: int) -> Callable:
    """Return attention with a softmax over an axis of scores (B, G, H / G, T, S)."""

    def answer(query, key, value):
        split = query.unflatten(1, (key.shape[1], -1))
        scores = split @ key[:, :, None].mT / query.shape[-1] ** 0.5
        return (scores.softmax(axis) @ value[:, :, None]).flatten(1, 2)

    return answer


check_grouped_query = Exercise(
    grouped_query,
    grouped_query_cases,
    stars=2,
    minutes=15,
    section="Multi-query and grouped-query attention",
    title="grouped-query attention",
    returns=("output",),
    mistakes={
        "repeat": (
            "head h uses group h mod G; consecutive heads should share a group",
            "key.repeat_interleave(each, dim=1) → key.repeat(1, each, 1, 1) ; "
            "value.repeat_interleave(each, dim=1) → value.repeat(1, each, 1, 1)",
        ),
        "first-group-only": (
            "every head uses the first group",
            "key.repeat_interleave(each, dim=1) → key[:, :1] ; "
            "value.repeat_interleave(each, dim=1) → value[:, :1]",
        ),
        "no-scale": (
            "the scores are not divided by √D",
            f"{ATTEND} → attend(query, key, value, scale=1)",
        ),
        "softmax-over-queries": (
            "the softmax runs over the queries; it should run over the keys",
            f"{ATTEND} → {SCORES}.softmax(-2) @ value",
        ),
        "softmax-over-heads": (
            "the softmax runs over the heads; it should run over the keys",
            [
                f"{ATTEND} → {SCORES}.softmax(1) @ value",
                softmax_over_heads(1),
                softmax_over_heads(2),
            ],
        ),
    },
    hints=("Head h uses group h // (H / G): repeat each group H / G times in a row.",),
)


def head_cost(C: int, H: int, G: int, T: int, S: int) -> list[int]:
    """Return four counts of grouped-query attention for one sequence.

    In this order: parameters of the four projections without biases; numbers
    in the attention weights; multiplications of the query-key products;
    numbers in the cached keys and values. Each head is C / H wide.
    """
    D = C // H
    return [2 * C * C + 2 * C * G * D, H * T * S, T * S * C, 2 * S * G * D]


def head_cost_cases(draw):
    def sizes(*choices):
        """Return D, H / G and G, one of several, as C, H and G; and T and S."""
        width, each, groups = draw.shuffle(choices)[0]
        lengths = draw.whole(3, 39), draw.whole(3, 39)
        return width * each * groups, each * groups, groups, *lengths

    yield "with one head of width 1 and one position", 1, 1, 1, 1, 1
    yield "with one head", *sizes((7, 1, 1))
    yield "with as many groups as heads", *sizes((5, 1, 6), (7, 1, 4))
    yield "with one group", *sizes((5, 6, 1), (7, 4, 1))
    several = sizes((5, 3, 2), (7, 2, 3), (11, 3, 2))
    yield "with several heads in a group", *several
    yield "with one query and a long cache", 4096, 32, 8, 1, 8192


check_head_cost = Exercise(
    head_cost,
    head_cost_cases,
    stars=2,
    minutes=10,
    section="Multi-query and grouped-query attention",
    title="the cost of heads",
    returns=("counts",),
    mistakes={
        "parameters-per-head": (
            "every head's projections are counted as C wide; they are C / H wide",
            "2 * C * C + 2 * C * G * D → 2 * H * C * C + 2 * G * C * C",
        ),
        "groups-ignored-in-parameters": (
            "the key and value projections are counted for H heads instead of G",
            "2 * C * G * D → 2 * C * C",
        ),
        "weights-of-one-head": (
            "the attention weights are counted for one head instead of H",
            "H * T * S → T * S",
        ),
        "products-per-head": (
            "every head's products are counted as C wide; they are C / H wide",
            "T * S * C → H * T * S * C",
        ),
        "keys-only": (
            "only the keys are counted in the cache, not the values",
            "2 * S * G * D → S * G * D",
        ),
        "cache-of-all-heads": (
            "the cache is counted for H heads instead of G",
            "2 * S * G * D → 2 * S * C",
        ),
    },
    hints=("Queries and output have H heads of width C / H, keys and values have G.",),
)

EXPLANATIONS = {
    "first": "the first of two heads copies",
    "second": "the second of two heads copies",
    "either": "either of two heads copies",
    "together": "two heads are needed together",
    "another": "a third head copies",
}


def build_copying_model(
    reason: str, pair: Sequence[int], costs: Sequence[float], chance: float
) -> Callable:
    """Return the accuracy of a model from the set of heads removed from it.

    The pair of heads attends to the symbol; without a head that copies, the accuracy
    is that of chance, and each other head costs a little.
    """

    def model(ablated):
        heads, gone = set(range(len(costs))), {int(head) for head in ablated}
        if not gone <= heads:
            raise ValueError(
                f"heads are 0 to {len(costs) - 1}, but {sorted(gone)} were removed"
            )
        first, second = (head not in gone for head in pair)
        copies = {
            "first": first,
            "second": second,
            "either": first or second,
            "together": first and second,
            "another": min(heads - {*pair}) not in gone,
        }[reason]
        return 0.98 - sum(costs[head] for head in gone) if copies else chance

    return model


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


def copying_heads_cases(draw):
    def number(low, high):
        return low + (high - low) * float(torch.rand((), generator=draw))

    for heads in 4, 8, 6:
        for reason in draw.shuffle(EXPLANATIONS):
            pair = sorted(draw.shuffle(range(heads))[:2])
            weights = [number(0.0, 0.4) for _ in range(heads)]
            for head in pair:
                weights[head] = number(0.91, 1.0)
            costs = [number(0.01, 0.05) for _ in range(heads)]
            model = build_copying_model(reason, pair, costs, number(0.03, 0.2))
            tries = f"with a model of {heads} heads, in which {EXPLANATIONS[reason]}"
            yield tries, model, weights


def list_pair(weights: Sequence[float]) -> list[int]:
    """Return the two heads that attend to the symbol."""
    return [head for head, weight in enumerate(weights) if weight > 0.9]


def compare_weights(model, weights):
    """Choose the head with the larger weight."""
    return list_pair(weights).index(weights.index(max(weights)))


def remove_one_at_a_time(neither: int) -> Callable:
    """Return a design that never removes both heads."""
    numbers = {(True, False): 0, (False, True): 1, (True, True): 3}
    return lambda model, weights: numbers.get(
        tuple(model({head}) < 0.5 for head in list_pair(weights)), neither
    )


def remove_both_at_once(found: int) -> Callable:
    """Return a design that removes both heads only."""
    return lambda model, weights: found if model(list_pair(weights)) < 0.5 else 4


check_copying_heads = Exercise(
    copying_heads,
    copying_heads_cases,
    stars=3,
    minutes=20,
    section="Ablation: which head copies which symbol?",
    title="ablations that show which head copies",
    returns=("explanation",),
    mistakes={
        "weights-only": (
            "it looks only at the weights, not at what the heads do",
            compare_weights,
        ),
        "one-at-a-time": (
            "it removes one head at a time only, but each may take over for the other",
            [remove_one_at_a_time(2), remove_one_at_a_time(4)],
        ),
        "both-at-once": (
            "it removes both heads at once only, which does not show which is needed",
            [remove_both_at_once(3), remove_both_at_once(2)],
        ),
        "any-drop": (
            "it takes every drop of the accuracy for a failure",
            "< 0.5 → < 0.97",
        ),
        "redundant-and-needed-swapped": (
            "it confuses explanations 2 and 3: if each removal fails, both are needed",
            "(False, False, True): 2 → (False, False, True): 3 ; "
            "(True, True, True): 3 → (True, True, True): 2",
        ),
    },
    hints=(
        "Write down for each explanation which of the three removals fail.",
        "Explanations 2 and 4 differ only if both heads are removed together.",
    ),
)
