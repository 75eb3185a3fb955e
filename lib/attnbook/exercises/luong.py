"""The exercises of the chapter on Luong's attention.

Source: Luong et al. (2015), sections 3.1 (equation 8), 3.2 and 3.3,
    https://arxiv.org/abs/1508.04025
Axes: B batch, T queries, S keys (source symbols), Dq and Dk width of query and key
"""

import hashlib
from collections.abc import Callable

import torch

from attnbook.attention.recurrent import general_scores, local_window
from attnbook.exercises.declare import Case, Exercise


def general_scores_cases(draw):
    def inputs(b, t, s, dq, dk, size=1):
        shapes = (b, t, dq), (b, s, dk), (dq, dk)
        return tuple(size * draw.normal(*shape) for shape in shapes)

    yield "with one query and one key", *inputs(1, 1, 1, 2, 3)
    yield "with 3 queries and 5 keys", *inputs(2, 3, 5, 7, 11)
    yield "with more queries than keys", *inputs(3, 5, 2, 3, 7)
    yield "with equal widths, and T = S", *inputs(2, 4, 4, 4, 4)
    yield "with large inputs", *inputs(2, 3, 5, 7, 11, size=40)


check_general_scores = Exercise(
    general_scores,
    general_scores_cases,
    stars=1,
    minutes=10,
    section="The general score",
    title="general scores",
    returns=("scores",),
    mistakes={
        "no-matrix": (
            "W is not used: this is the dot score, which needs equal widths",
            lambda q, k, W: q @ k.mT,
        ),
        "untransposed": (
            "W is transposed: this is kᵀ W q; it should be qᵀ W k",
            lambda q, k, W: q @ W.T @ k.mT,
        ),
        "swapped-axes": (
            "the axes of queries and keys are swapped; the shape should be (B, T, S)",
            lambda q, k, W: k @ (q @ W).mT,
        ),
        "reshaped": (
            "the keys are reshaped; they should be transposed",
            [
                lambda q, k, W: q @ W @ k.reshape(len(k), k.shape[2], k.shape[1]),
                lambda q, k, W: q @ (k @ W.T).reshape(len(k), len(W), k.shape[1]),
            ],
        ),
        "normalised": (
            "the softmax has been applied; the exercise asks for scores",
            lambda q, k, W: (q @ W @ k.mT).softmax(-1),
        ),
        "scaled": (
            "the scores are divided by the root of a width; W can learn the scale",
            [
                lambda q, k, W: q @ W @ k.mT / q.shape[-1] ** 0.5,
                lambda q, k, W: q @ W @ k.mT / k.shape[-1] ** 0.5,
            ],
        ),
    },
)


def local_window_cases(draw):
    def quarters(low, high, *shape):
        """Return centers a quarter away from a whole number: no ties."""
        return draw.integers(low, high, *shape) + draw.integers(0, 1, *shape) / 2 - 0.25

    wholes = draw.integers(1, 5, 2, 3).float()
    between = draw.integers(1, 5, 2, 3) + 0.1 + 0.8 * torch.rand(2, 3, generator=draw)
    ends = [quarters(*pair, 2, 1) for pair in ((-1, 0), (6, 7), (2, 4))]
    outside = torch.cat([quarters(-9, -6, 2, 2), quarters(16, 20, 2, 1)], 1)
    cases = (
        ("with one query and one position", torch.zeros(1, 1), 1, 0),
        ("around whole numbers", wholes, 7, 1),
        ("around centers between positions", between, 7, 1),
        ("with a reach of 2", wholes.flip(1), 11, 2),
        ("with windows over either end", torch.cat(ends, 1), 7, 2),
        ("with windows beyond either end", outside, 11, 2),
        ("with a reach of 0", torch.cat([wholes, between], 1), 7, 0),
        ("with fewer positions than queries", quarters(0, 2, 2, 5), 3, 1),
        ("with a long sentence", quarters(0, 60, 4, 9), 61, draw.whole(3, 9)),
    )
    for tries, *inputs in cases:
        yield Case(tries, tuple(inputs), gradient=False)


check_local_window = Exercise(
    local_window,
    local_window_cases,
    stars=1,
    minutes=10,
    section="Global and local attention",
    title="mask of local attention",
    returns=("window",),
    mistakes={
        "strict": (
            "a distance of exactly `reach` is left out; it belongs to the window",
            ".abs() <= → .abs() <",
        ),
        "half-open": (
            "the right edge is excluded, as in a slice; it belongs to the window",
            "return position_offsets(center, length).abs() <= reach → "
            "x = position_offsets(center, length)\n"
            "    return (x >= -reach) & (x < reach)",
        ),
        "half-reach": (
            "`reach` is the width of the window; it is the distance to each side",
            "<= reach → <= reach / 2",
        ),
        "inverted": (
            "the mask is inverted: True should mean that a query can attend",
            "<= reach → > reach",
        ),
        "rounded": (
            "the center is rounded; it may lie between two positions",
            [
                "(center, length) → (center.round(), length)",
                "(center, length) → (center.floor(), length)",
            ],
        ),
        "counts-from-one": (
            "the positions are counted from 1; they should be counted from 0",
            "(center, length) → (center - 1, length)",
        ),
    },
)


def decoder_depth(kind: str, T: int, L: int) -> int:
    """Return how many arrows the longest path through a decoder has.

    Args:
        kind: "before" or "after", where the decoder attends; "feeding" for
            "after" with input feeding.
        T: output steps.
        L: recurrent layers, one above the other.
    """
    if kind == "before":  # each step: c_t, then all layers; at the end o_T
        return T * (L + 1) + 1
    if kind == "after":  # along one layer, up all others, then c_T and o_T
        return T + L + 1
    return T * (L + 2)  # each step: all layers, c_t, o_t


def decoder_depth_cases(draw):
    sizes = [(1, 1), (1, 3), (4, 1), (3, 2), (2, 5)]
    sizes.append((draw.whole(6, 40), draw.whole(6, 40)))
    pairs = [(T, L, kind) for T, L in sizes for kind in ("before", "after", "feeding")]
    for T, L, kind in draw.shuffle(pairs):
        tries = f"with {T} step{'s' * (T > 1)} and {L} layer{'s' * (L > 1)}"
        yield tries, kind, T, L


check_decoder_depth = Exercise(
    decoder_depth,
    decoder_depth_cases,
    stars=2,
    minutes=15,
    section="Attention after the recurrent step",
    title="the longest path through a decoder",
    returns=("arrows",),
    mistakes={
        "one-layer": (
            "the number of layers is not used; a path also leads up through the layers",
            lambda kind, T, L: decoder_depth(kind, T, 1),
        ),
        "layers-wait": (
            "layer 1 waits for all layers of the step before; after the step, it waits "
            "for layer 1 only",
            "T + L + 1 → T * L + 2",
        ),
        "no-output": (
            "the last arrow, to the vector that predicts the word, is missing",
            lambda *given: decoder_depth(*given) - 1,
        ),
        "feeding-parallel": (
            "input feeding is ignored; with it, each step waits for the one before",
            "T * (L + 2) → T + L + 1",
        ),
        "feeding-as-before": (
            "input feeding is counted like attention before the step; the attentional "
            "vector is one arrow further than the context vector",
            "T * (L + 2) → T * (L + 1) + 1",
        ),
    },
    hints=(
        "Draw two steps of two layers, with an arrow for each input of a box.",
        "Find what each further step repeats; add the arrows before and after it.",
    ),
)


def two_factors(error: Callable) -> int:
    """Return what explains the errors of two decoders: 0, 1, 2, 3 or 4.

    0: neither change matters. 1: the score does. 2: when the decoder attends.
    3: both, each by itself. 4: only both together.

    Args:
        error: (score, order, seed) to the error of one run, in percent.
    """
    mean = {
        (score, order): sum(error(score, order, seed) for seed in range(40)) / 40
        for score in ("additive", "dot")
        for order in ("before", "after")
    }
    least = 2.5  # half of the least effect
    change_before = mean["dot", "before"] - mean["additive", "before"]
    change_after = mean["dot", "after"] - mean["additive", "after"]
    if abs(change_after - change_before) > least:
        return 4
    change_of_order = mean["additive", "after"] - mean["additive", "before"]
    return (abs(change_before) > least) + 2 * (abs(change_of_order) > least)


def make_training(
    base: float | int,
    salt: int,
    score: float | int = 0,
    order: float | int = 0,
    both: float | int = 0,
) -> Callable:
    """Return the errors in percent that training runs would find.

    `base` is that of the additive score before the step; the dot score adds `score`,
    attention after the step `order`, and the two together `both` besides.
    """

    def error(kind: str, when: str, seed: int) -> float:
        """Return the error of one run; other names raise a ValueError."""
        for given, known in (kind, ("additive", "dot")), (when, ("before", "after")):
            if given not in known:
                raise ValueError(f"{given!r} is none of {known}")
        dot, after = kind == "dot", when == "after"
        name = f"{salt} {kind} {when} {int(seed)}".encode()
        number = int.from_bytes(hashlib.blake2b(name, digest_size=4).digest())
        found = base + dot * score + after * order + dot * after * both
        return found + 3 * (2 * number / 2**32 - 1)

    return error


def two_factors_cases(draw):
    size, sizes = draw.whole(5, 9), (draw.whole(5, 9), draw.whole(5, 9))
    kinds = {
        "the score": {"score": size},
        "the score, which helps": {"score": -size},
        "the order": {"order": size},
        "neither": {},
        "both": {"score": sizes[0], "order": sizes[1]},
        "both, which cancel": {"score": 7, "order": -7},
        "the combination": {"both": size},
        "the combination, which helps": {"both": -size},
    }
    for what, effects in draw.shuffle(kinds.items()):
        training = make_training(draw.whole(25, 50), draw.whole(0, 10**6), **effects)
        yield f"with a difference due to {what}", training


check_two_factors = Exercise(
    two_factors,
    two_factors_cases,
    stars=3,
    minutes=20,
    section="Comparing one factor at a time",
    title="an experiment with two factors",
    returns=("explanation",),
    mistakes={
        "published-only": (
            "it compares only the two published decoders; train the mixed ones as well",
            "least = 2.5 → return 3 * "
            '(abs(mean["dot", "after"] - mean["additive", "before"]) > 2.5)',
        ),
        "one-seed": (
            "it trains each decoder with few seeds; chance can change the error of a "
            "run by three points",
            [
                "range(40)) / 40 → range(1))",
                "range(40)) / 40 → range(3)) / 3",
                "least = 2.5 → least, mean = 5, {x: error(*x, 0) for x in mean}",
                "least = 2.5 → least = 5\n"
                "    mean = {x: sum(error(*x, n) for n in range(3)) / 3 for x in mean}",
            ],
        ),
        "threshold-too-high": (
            "its threshold is 5, the least effect; chance then hides some effects, "
            "so it should lie between 0 and 5",
            "least = 2.5 → least = 5",
        ),
        "fourth-missing": (
            "it never changes both factors; an effect of both together is then missed",
            "return 4 → pass",
        ),
        "only-improvements": (
            "it counts only changes that lower the error; a rise is an effect as well",
            'least = 2.5 → least, base = 2.5, mean["additive", "before"]'
            "\n    mean = {pair: min(x, base) for pair, x in mean.items()}",
        ),
        "chance-as-effect": (
            "it takes every difference for an effect; means also differ by chance",
            "least = 2.5 → least = 0.02",
        ),
    },
    hints=(
        "Two factors with two values each: how many decoders are there to compare?",
        "Compare means of many seeds, the effect of the score before and after.",
    ),
)
