"""Exercise: predict what a window with sinks costs, and what reaches its end.

Source: receptive field of windows over L layers: Beltagy et al. (2020), section
    3.1, https://arxiv.org/abs/2004.05150; sinks: Xiao et al. (2024), section
    3.2, https://arxiv.org/abs/2309.17453
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def pattern_counts(
    length: int, window: int, step: int, sinks: int, layers: int
) -> list[int]:
    """Return four counts of a causal window with sinks.

    In this order: keys that the last query attends to; scores of all queries
    in one layer; inputs that can reach the last position through all layers;
    the smallest number of layers through which every input can reach it, or 0
    if there is none.

    Args:
        length: number of positions, at least 2.
        window: keys of the window, the query's own among them.
        step: of a dilated window: every `step`-th key; 1 for no gaps.
        sinks: first positions that all later queries can attend to.
        layers: number of layers, each with this pattern.
    """

    def list_keys(query: int) -> set[int]:
        near = range(query, query - window * step, -step)
        first = range(min(sinks, query + 1))
        return {key for key in near if key >= 0} | {*first}

    scores = sum(len(list_keys(query)) for query in range(length))
    reached = [{length - 1}, list_keys(length - 1)]
    while reached[-1] != reached[-2]:
        reached.append(set().union(*map(list_keys, reached[-1])))
    depth = len(reached) - 2 if len(reached[-1]) == length else 0
    within = reached[min(layers, len(reached) - 1)]
    return [len(reached[1]), scores, len(within), depth]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A window; a start that cuts it off; sinks; dilation; many layers."""

    def size(low: int, high: int) -> int:
        return int(draw_integers(rng, low, high, 1))

    return (
        Case("with a window of 3 and 2 layers", (10, 3, 1, 0, 2)),
        Case("with a longer sequence", (size(30, 60), 4, 1, 0, size(3, 5))),
        Case("with a window beyond the start", (size(4, 7), 9, 1, 0, 3)),
        Case("with a window of one key", (size(5, 9), 1, 1, 0, 4)),
        Case("with sinks", (size(25, 40), size(3, 5), 1, size(2, 4), 3)),
        Case("with sinks inside the window", (size(6, 8), 5, 1, 4, 2)),
        Case("with a dilated window", (size(24, 40), size(3, 4), 2, 0, 3)),
        Case("with dilation and sinks", (size(24, 40), 3, 3, size(1, 4), 2)),
        Case("with more layers than are needed", (size(9, 14), 4, 1, 0, 20)),
    )


def count_back(n: int, hops: int, step: int, sinks: int) -> int:
    """Return how many positions are sinks, or at most some hops back."""
    last = max(-1, n - 2 - hops * step)
    return len({*range(n - 1, last, -step), *range(min(sinks, n))})


def ignore_gaps(n: int, window: int, step: int, sinks: int, layers: int) -> int:
    """Return how many layers go back to the first position after the sinks."""
    far = n - 1 - sinks
    if far <= 0:
        return 1
    return -(-far // ((window - 1) * step)) if window > 1 else 0


def count_sinks_twice(
    n: int, window: int, step: int, sinks: int, layers: int
) -> list[int]:
    """Return the counts, with sinks in the window counted twice."""
    right = pattern_counts(n, window, step, sinks, layers)
    keys, scores, *_ = pattern_counts(n, window, step, 0, layers)
    scores += sum(min(sinks, query + 1) for query in range(n))
    return [keys + sinks, scores, *right[2:]]


check_pattern_counts = Exercise(
    title="keys, scores and receptive field of a pattern",
    stars=2,
    minutes=20,
    section="Receptive field: how far information travels in L layers",
    solution=pattern_counts,
    returns=("counts",),
    draw=draw,
    key_line="near = range(query, query - window * step, -step)",
    allowed="Everything is allowed; `attnbook.masks` has the answer in it.",
    mistakes=(
        Mistake(
            "layers-times-window",
            "receptive field of layers times window",
            "the receptive field is computed as layers times window. Each "
            "layer adds window - 1 keys, because the window counts the query's "
            "own",
            "len(within) → count_back(length, layers * window - 1, step, sinks)",
        ),
        Mistake(
            "one-layer",
            "receptive field of one layer",
            "the receptive field is that of one layer; each further layer adds "
            "what the keys attended to in the layer before",
            "len(within) → len(reached[1])",
        ),
        Mistake(
            "gaps-filled",
            "gaps of a dilated window filled",
            "all positions back to the farthest one are counted; with the same "
            "step in every layer, no path leads to the positions between",
            "len(within) → count_back(length, layers * (window - 1) * step, 1, sinks)",
        ),
        Mistake(
            "gaps-reached",
            "layers for the gaps of a dilated window",
            "a number of layers is given for a dilated window. With the same "
            "step in every layer, no number of layers reaches the positions "
            "between, and the count is 0",
            "depth] → ignore_gaps(length, window, step, sinks, layers)]",
        ),
        Mistake(
            "step-not-used",
            "step not used",
            "the step is not used: a dilated window has every step-th key, and "
            "goes back step times as far",
            "window * step, -step → window, -1",
        ),
        Mistake(
            "sinks-not-counted",
            "sinks not counted",
            "the sinks are not counted: queries attend to them in addition to "
            "their window",
            "min(sinks, query + 1) → 0",
        ),
        Mistake(
            "sinks-counted-twice",
            "sinks in the window counted twice",
            "sinks that are also in the window are counted twice",
            count_sinks_twice,
        ),
        Mistake(
            "sinks-as-global-tokens",
            "sinks taken for global tokens",
            "every input is taken to reach the position through a sink in two "
            "layers. A sink is one of the first positions and attends only to "
            "positions before it",
            (
                "len(within) → length if sinks and layers > 1 else len(within)",
                "depth] → min(2, depth or 2) if sinks else depth]",
            ),
        ),
        Mistake(
            "start-not-cut-off",
            "first queries with whole windows",
            "every query is taken to have as many keys as the last one; the "
            "first queries have fewer positions before them",
            "scores, → length * len(reached[1]),",
        ),
        Mistake(
            "scores-of-all-layers",
            "scores of all layers",
            "the scores of all layers are counted; the second count is that of "
            "one layer",
            "scores, → layers * scores,",
        ),
        Mistake(
            "scores-of-causal-attention",
            "scores of full causal attention",
            "all scores of causal attention are counted; the pattern computes "
            "only those of its own keys",
            "scores, → length * (length + 1) // 2,",
        ),
        Mistake(
            "one-layer-too-many",
            "one layer too many",
            "the number of layers is one too high: the first layer already "
            "reaches all keys of the window",
            "len(reached) - 2 if len(reached[-1]) == length else 0 "
            "→ (len(reached) - 1) * (len(reached[-1]) == length)",
        ),
        Mistake(
            "one-key-too-few",
            "one key too few",
            "the window has one key too few: it counts the query's own",
            "window * step, → (window - 1) * step,",
        ),
        Mistake(
            "one-key-too-many",
            "one key too many",
            "the window has one key too many: it counts the query's own",
            "window * step, → (window + 1) * step,",
        ),
    ),
)
