"""The exercises of the chapter on reading heads.

Source: induction heads, and repeated blocks of random tokens: Elhage et al. (2021),
    https://transformer-circuits.pub/2021/framework/index.html; Olsson et al. (2022),
    https://arxiv.org/abs/2209.11895; duplicate-token heads: Wang et al. (2022),
    https://arxiv.org/abs/2211.00593; ablation: Michel, Levy and Neubig (2019), section
    2, https://arxiv.org/abs/1905.10650
Axes: B batch, T positions, C model width, H heads, D = C / H width of a head
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.diagnose.heads import (
    mark_duplicate_tokens,
    mark_induction,
    score_duplicate_token,
    score_induction,
    score_pattern,
)
from attnbook.exercises.declare import Case, Exercise
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder


def induction_cases(draw):
    def case(tries: str, ids: Tensor, heads: int = 3, causal: bool = True) -> Case:
        scores = 2 * draw.normal(heads, len(ids), len(ids))
        future = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
        if causal:
            scores = scores.masked_fill(future, -torch.inf)
        # Answers may count with Python's numbers or NumPy's.
        return Case(tries, (scores.softmax(-1), ids), gradient=False)

    block = torch.tensor(draw.shuffle(range(50))[:6])
    yield case("with one repeated token", torch.tensor([5, 8, 5]), 1)
    yield case("with a block repeated once", block.repeat(2))
    yield case("with a block repeated twice", block.repeat(3), 2)
    yield case("with four different tokens", draw.integers(0, 3, 17), 4)
    yield case("with a token repeated directly", torch.tensor([3, 9, 9, 3]))
    yield case("without a repeated token", block)
    yield case("with weights on later positions", block.repeat(3), 2, False)
    yield case("with many positions", draw.integers(0, 20, 75))


check_induction_score = Exercise(
    score_induction,
    induction_cases,
    stars=2,
    minutes=15,
    section="What do heads do? Scores on controlled inputs",
    title="the induction score of each head",
    returns=("scores",),
    helpers=(score_pattern, mark_induction, mark_duplicate_tokens),
    library=(score_duplicate_token,),
    mistakes={
        "earlier-token-itself": (
            "earlier occurrences are counted; it should be the positions after them",
            "mark_induction → mark_duplicate_tokens",
        ),
        "most-recent-only": (
            "only the last earlier occurrence counts; all of them should",
            "mark_induction(ids) → "
            "(x := mark_induction(ids)) & (x.cumsum(-1) == x.sum(-1)[:, None])",
        ),
        "transposed": (
            "queries and keys are swapped in `weights[h, t, s]`",
            "weights, → weights.mT,",
        ),
        "all-positions-in-mean": (
            "the mean is over all positions; it should be over repeated tokens",
            "score_pattern(weights, mark_induction(ids)) → "
            "(weights * mark_induction(ids)).sum((1, 2)) / len(ids)",
        ),
        "mean-over-keys": (
            "the mean is over marked keys; it should be over queries",
            "score_pattern(weights, mark_induction(ids)) → "
            "(weights * (x := mark_induction(ids))).sum((1, 2)) / x.sum().clamp(min=1)",
        ),
    },
    hints=(
        "At which keys did the query's token occur before? Which keys come after them?",
        "Shift `(ids[:, None] == ids).tril(-1)` by one column to the right.",
    ),
)


PROBE = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 10, 7]])


def ablate_head(model: ModernDecoder, layer: int, head: int) -> ModernDecoder:
    """Return a copy of a decoder in which one head contributes nothing."""
    ablated = copy.deepcopy(model)
    attention: Any = ablated.blocks[layer].attention
    output = attention.output  # its input: the heads' outputs side by side
    width = output.in_features // attention.heads
    first = head * width
    with torch.no_grad():
        output.weight[:, first : first + width] = 0.0
    return ablated


def ablate_cases(draw):
    def case(tries: str, sizes: tuple[int, ...], layer: int, head: int) -> tuple:
        heads, groups, width, blocks = sizes
        config = DecoderConfig(11, heads * width, heads, groups, 6, blocks)
        with torch.random.fork_rng():
            model = ModernDecoder(config).eval()
        with torch.no_grad():
            for matrix in model.parameters():
                if matrix.dim() == 2:  # such that every head matters
                    scale = matrix.shape[1] ** -0.5
                    matrix.copy_(scale * draw.normal(*matrix.shape))
        return tries, model, layer, head

    yield case("with one block of two heads", (2, 2, 2, 1), 0, 0)
    yield case("with the second of two heads", (2, 2, 2, 1), 0, 1)
    yield case("with the second of three blocks", (3, 3, 2, 3), 1, 1)
    yield case("with the last head of the last block", (4, 4, 4, 2), 1, 3)
    yield case("with two heads in a group", (4, 2, 2, 2), 0, 1)
    yield case("with one group of three heads", (3, 1, 4, 2), 1, 0)
    yield case("with the only head of a block", (1, 1, 4, 2), 0, 0)


def run_both(ablated, model, layer, head):
    """Return the logits of the returned and of the given model."""
    if not callable(ablated):
        return ablated
    return ablated(PROBE), model(PROBE)


check_ablate_head = Exercise(
    ablate_head,
    ablate_cases,
    stars=2,
    minutes=15,
    section="Ablation: what does the model lose without a head?",
    title="a model without one of its heads",
    returns=("logits", "logits_of_the_given_model"),
    forbidden=frozenset(),
    compare=run_both,
    mistakes={
        "changed-in-place": (
            "the weights of the given model are changed; change a deep copy",
            "copy.deepcopy(model) → model",
        ),
        "rows": (
            "rows of the output projection are zeroed; it should be columns",
            "weight[:, first → weight[first",
        ),
        "interleaved": (
            "every H-th column is zeroed; the columns of a head lie side by side",
            "first : first + width → head :: attention.heads",
        ),
        "uniform-weights": (
            "queries are zeroed, which leaves the head with uniform weights",
            "output.weight[:, first → attention.query.weight[first",
        ),
        "shared-values": (
            "the values are zeroed, which the group's other heads use as well",
            "head * → head * attention.groups // attention.heads * ; "
            "output.weight[:, first → attention.value.weight[first",
        ),
    },
    hints=("Which columns of the output projection multiply the output of one head?",),
)


def score_counts(block: int, copies: int, before: int, distance: int) -> list[int]:
    """Return at how many positions a head attends where three scores look."""
    ids = [*range(-before, 0), *(copies * [*range(block)])]
    attended = [max(t - distance, 0) for t in range(len(ids))]
    earlier = [[s for s in range(t) if ids[s] == x] for t, x in enumerate(ids)]
    scored = [t for t, found in enumerate(earlier) if found]
    induction = sum(attended[t] - 1 in earlier[t] for t in scored)
    duplicate = sum(attended[t] in earlier[t] for t in scored)
    previous = sum(s == t - 1 for t, s in enumerate(attended))
    return [len(scored), induction, duplicate, previous]


def score_cases(draw):
    size, n, few = draw.whole, draw.whole(5, 9), draw.whole(3, 6)
    yield "with the distance of an induction head", 4, 2, 0, 3
    yield from draw.shuffle(
        (
            ("with the distance of a block", n, 2, 0, n),
            ("with tokens before the block", n, 2, size(1, 4), n - 1),
            ("with three copies", n, 3, size(1, 3), n - 1),
            ("with almost two blocks' distance", 4, size(4, 6), 1, 7),
            ("with two blocks' distance", few, 4, 0, 2 * few),
            ("with the token before", size(3, 6), 3, 2, 1),
            ("with its own position", size(3, 6), 2, 1, 0),
            ("with blocks of one token after others", 1, size(4, 6), 2, 3),
            ("with blocks of two tokens", 2, size(4, 6), 1, 1),
            ("with a single block", size(4, 8), 1, 1, 1),
            ("with a distance beyond the start", 4, 3, 0, size(15, 20)),
            ("with a distance that fits nothing", 5, 3, 1, 7),
        )
    )


check_score_counts = Exercise(
    score_counts,
    score_cases,
    stars=2,
    minutes=20,
    section="What do heads do? Scores on controlled inputs",
    title="three scores of a head at a fixed distance",
    returns=("counts",),
    mistakes={
        "swapped": (
            "the counts of induction and of duplicate tokens are swapped",
            "induction, duplicate, → duplicate, induction,",
        ),
        "token-before-the-earlier": (
            "induction counts the position before an occurrence, not after",
            "attended[t] - 1 → attended[t] + 1",
        ),
        "last-occurrence-only": (
            "only the last earlier occurrence counts; all of them should",
            "if ids[s] == x] for → if ids[s] == x][-1:] for",
        ),
        "start-forgotten": (
            "the start is left out; there the head attends to position 0",
            "max(t - distance, 0) → t - distance if t >= distance else -9",
        ),
        "position-0-has-one-before": (
            "position 0 is counted in the last count; no token is before it",
            "s == t - 1 → s == max(t - 1, 0)",
        ),
    },
    hints=("Write the tokens as a list, and count position by position.",),
)


KINDS = (
    "to the token after the same token",
    "to the same token",
    "at a fixed distance",
    "to the token after the same two tokens",
    "to position 0",
)
FARTHEST, SYMBOLS, LONGEST = 12, 100, 64


class Head:
    """A causal head that attends to one position, by one of `KINDS`.

    Called with token ids, it returns for each position the position with the
    largest weight. Where the rule finds none, that is position 0.
    """

    def __init__(self, kind: int, distance: int):
        self._kind, self.distance = kind, distance

    def __call__(self, ids: Sequence[int] | Tensor) -> list[int]:
        """Return the position that each position attends to."""
        ids = [int(x) for x in ids]
        if len(ids) > LONGEST or not {*ids} <= set(range(SYMBOLS)):
            raise ValueError(
                f"at most {LONGEST} ids from 0 to {SYMBOLS - 1}, not {ids}"
            )
        return [self.find_position(ids, t) for t in range(len(ids))]

    def find_position(self, ids: list[int], t: int) -> int:
        """Return the position that position t attends to."""
        if self._kind in (2, 4):
            return max(t - self.distance, 0) if self._kind == 2 else 0
        same = [s for s in range(t) if ids[s] == ids[t]]
        if self._kind == 3:
            same = [s for s in same if s and ids[s - 1] == ids[t - 1]]
        shift = int(self._kind != 1)
        return same[-1] + shift if same else 0


def head_kind(head: Callable, ids: Sequence[int]) -> int:
    """Return by which rule a head attends: 0 to 4."""
    # Token 1 is repeated after another token, and 2, 3 as a pair; the gaps
    # differ. The last position is more than 12 positions from the start.
    found = head([9, 1, 2, 3, 1, 5, 6, 2, 3, *range(20, 30)])
    rules = {(2, 3, 4): 0, (1, 2, 3): 1, (0, 0, 4): 3}
    seen = found[4], found[7], found[8]
    return rules.get(seen, 2 if found[-1] else 4)


def head_cases(draw):
    def case(kind: int, distance: int, block: int) -> Case:
        ids = draw.shuffle(range(SYMBOLS))[:block]
        words = f" of {distance}" if kind == 2 else ""
        tries = f"with a head that attends {KINDS[kind]}{words}"
        return Case(tries, (Head(kind, distance), 2 * ids))

    size, block = draw.whole, draw.whole(5, 8)
    cases = [case(kind, 1, size(5, 8)) for kind in (0, 1, 3, 4, 0, 1, 3, 4)]
    distances = (1, 2, 3, 4, size(9, FARTHEST))
    cases += [case(2, distance, size(5, 8)) for distance in distances]
    cases += [case(2, block - 1, block), case(2, block, block)]
    yield from draw.shuffle(cases)


check_head_kind = Exercise(
    head_kind,
    head_cases,
    stars=3,
    minutes=20,
    section="What do heads do? Scores on controlled inputs",
    title="a sequence that shows what a head looks for",
    returns=("kind",),
    mistakes={
        "example-only": (
            "it tries only the given block; vary the distance of repeated tokens",
            "[9, 1, 2, 3, 1, 5, 6, 2, 3, *range(20, 30)] → ids ; "
            "found[4], found[7], found[8] → tuple(found[len(ids) // 2 :][:3]) ; "
            "(2, 3, 4): 0, (1, 2, 3): 1, (0, 0, 4): 3 → "
            "(1, 2, 3): 0, (0, 1, 2): 1, (0, 2, 3): 3",
        ),
        "one-gap": (
            "all its repeated tokens have the same distance; vary it",
            "9, 1, 2, 3, 1, 5, 6, 2, 3, *range(20, 30) → 1, 2, 3, 4, 1, 2, 3, 4 ; "
            "found[4], found[7], found[8] → tuple(found[4:7]) ; "
            "(2, 3, 4): 0, (1, 2, 3): 1, (0, 0, 4): 3 → "
            "(1, 2, 3): 0, (0, 1, 2): 1, (0, 2, 3): 3",
        ),
        "no-pair": (
            "it never repeats a token together with the one before it",
            "(0, 0, 4): 3 → (0, 0, 4): 4",
        ),
        "too-short": (
            "its sequence is too short to show a distance of 12",
            ", *range(20, 30) → ",
        ),
        "induction-and-duplicate-swapped": (
            "it confuses the token after the same token with that token",
            "(2, 3, 4): 0, (1, 2, 3): 1 → (2, 3, 4): 1, (1, 2, 3): 0",
        ),
    },
    hints=(
        "Which positions do the five rules point to if a token is repeated after "
        "another?",
        "Repeat one token and one pair at different distances, far from the start.",
    ),
)
