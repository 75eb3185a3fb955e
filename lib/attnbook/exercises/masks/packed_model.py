"""Exercise: design inputs that show how a model treats packed documents.

Source: the possibilities are those of the chapter's section on packing
Axes: T positions, C width
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import differ
from attnbook.exercises.inputs import draw_integers, draw_normal, shuffle_cases

SYMBOLS, MOST, WIDTH = 10, 12, 6


@dataclass(eq=False)
class PackedModel:
    """One causal layer for packed documents, with or without two faults.

    Called with tokens (T,) and document numbers (T,), it returns (T, C).

    Attributes:
        crosses: whether tokens can attend to earlier documents.
        continues: whether positions do not restart.
        numbers: token and position embeddings, query and key projections.
    """

    crosses: bool
    continues: bool
    numbers: tuple[Tensor, ...]

    def __call__(self, tokens: Tensor, ids: Tensor) -> Tensor:
        """Return one output for each token.

        Raises:
            ValueError: if there are too many tokens, or the shapes differ.
        """
        if tokens.shape != ids.shape or not 0 < len(tokens) <= MOST:
            raise ValueError(
                f"tokens and ids need the same shape (T,) with T from 1 to "
                f"{MOST}, but are {tuple(tokens.shape)} and {tuple(ids.shape)}"
            )
        symbols, places, W_query, W_key = self.numbers
        index = torch.arange(len(tokens))
        first = torch.ones_like(ids, dtype=torch.bool)
        first[1:] = ids[1:] != ids[:-1]
        start = torch.where(first, index, 0).cummax(0).values
        position = index if self.continues else index - start
        x = symbols[tokens] + places[position]
        mask = index <= index[:, None]
        if not self.crosses:
            mask = mask & (start == start[:, None])
        return x + attend(x @ W_query.T, x @ W_key.T, x, mask)

    def __eq__(self, other) -> bool:
        """Two models are equal if their faults and their numbers are."""
        faults = self.crosses, self.continues
        return faults == (other.crosses, other.continues) and all(
            map(torch.equal, self.numbers, other.numbers)
        )

    # Equal by their numbers, which may change: not hashable.
    __hash__ = None  # type: ignore[assignment]


def packed_model(model: Callable, tokens: Tensor, ids: Tensor) -> int:
    """Return how a model treats packed documents, as a number.

    0: it separates them and restarts the positions. 1: tokens can attend to
    earlier documents, positions restart. 2: documents are separated, positions
    do not restart. 3: both faults.

    Args:
        model: from tokens (T,) and document numbers (T,) to outputs (T, C).
        tokens: an example.
        ids: an example.
    """

    def differ(a: Tensor, b: Tensor) -> bool:
        return not torch.allclose(a, b, atol=1e-4)

    row = torch.tensor([1, 2, 3, 4, 5])
    other = torch.tensor([6, 7, 8, 4, 5])
    two, one = torch.tensor([0, 0, 0, 1, 1]), torch.zeros(5, dtype=torch.long)
    packed = model(row, two)
    if differ(packed[3:], model(other, two)[3:]):
        # Attention ignores the document numbers. If the outputs depend on
        # them nevertheless, the positions do.
        return 1 if differ(packed, model(row, one)) else 3
    return 2 if differ(packed[3:], model(row[3:], one[3:])) else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right model first, then every combination of faults, in any order."""

    def case(crosses: bool, continues: bool, documents: int) -> Case:
        numbers = (
            draw_normal(rng, SYMBOLS, WIDTH),
            draw_normal(rng, MOST, WIDTH),
            draw_normal(rng, WIDTH, WIDTH) / 2,
            draw_normal(rng, WIDTH, WIDTH) / 2,
        )
        tokens = draw_integers(rng, 0, SYMBOLS - 1, 6)
        ids = torch.arange(6) * documents // 6
        faults = [
            name
            for name, there in (
                ("attends to earlier documents", crosses),
                ("does not restart positions", continues),
            )
            if there
        ]
        what = " and ".join(faults) or "is right"
        given = "one document" if documents == 1 else f"{documents} documents"
        model = PackedModel(crosses, continues, numbers)
        return Case(f"with a model that {what}, given {given}", (model, tokens, ids))

    kinds = [
        (crosses, continues, documents)
        for crosses in (False, True)
        for continues in (False, True)
        for documents in (2, 1, 3)
    ]
    return shuffle_cases(tuple(case(*kind) for kind in kinds), rng)


def read_example(model, tokens, ids):
    """Return what the example shows, and nothing else."""
    later = ids != ids[0]
    changed = torch.where(later, tokens, (tokens + 1) % SYMBOLS)
    packed = model(tokens, ids)
    if not later.any():
        return 0
    if differ(packed[later], model(changed, ids)[later]):
        return 1 if differ(packed, model(tokens, ids * 0)) else 3
    second = ids == ids[later][0]
    alone = model(tokens[second], ids[second])
    return 2 if differ(packed[second], alone) else 0


check_packed_model = Exercise(
    title="how a model treats packed documents",
    stars=3,
    minutes=25,
    section="Packed sequences: document mask and position reset",
    solution=packed_model,
    key_line="two, one = torch.tensor([0, 0, 0, 1, 1]), torch.zeros(5, "
    "dtype=torch.long)",
    returns=("possibility",),
    draw=draw,
    mistakes=(
        Mistake(
            "example-only",
            "only the example tried",
            "it uses only the given tokens and document numbers; with a single "
            "document, all four possibilities look the same",
            read_example,
        ),
        Mistake(
            "first-document",
            "first document compared",
            "it compares the outputs of the first document, which are right in "
            "all four cases",
            (
                "packed[3:], model(other, two)[3:] → "
                "packed[:3], model(row[:3], one[:3])",
                "packed[3:], model(row[3:], one[3:]) → "
                "packed[:3], model(row[:3], one[:3])",
            ),
        ),
        Mistake(
            "attention-not-tested",
            "attention to earlier documents not tested",
            "it does not notice that tokens attend to earlier documents: "
            "change the tokens of the earlier document, and compare the "
            "outputs of the later one",
            "differ(packed[3:], model(other, two)[3:]) → False",
        ),
        Mistake(
            "always-crosses",
            "every model attends to earlier documents",
            "it finds that every model attends to earlier documents. Compare "
            "only the outputs of unchanged tokens, and give the documents "
            "different numbers",
            "packed[3:], model(other, two)[3:] → packed, model(other, two)",
        ),
        Mistake(
            "crossing-only",
            "positions not tested",
            "it does not test the positions",
            renumber(packed_model, {2: 0, 3: 1}),
        ),
        Mistake(
            "confounded",
            "two causes not separated",
            "it compares the outputs of a packed document with those of the "
            "same document alone. If tokens attend to earlier documents, "
            "these outputs differ even if positions restart; keep the tokens "
            "and change only the document numbers",
            "1 if differ(packed, model(row, one)) else 3 → "
            "3 if differ(packed[3:], model(row[3:], one[3:])) else 1",
        ),
        Mistake(
            "restarts-inverted",
            "restart inverted where documents are not separated",
            "it confuses possibilities 1 and 3. Where tokens attend to "
            "earlier documents, change only the document numbers: if the "
            "outputs change, the positions restart",
            renumber(packed_model, {1: 3, 3: 1}),
        ),
        Mistake(
            "swapped",
            "attention to other documents and positions that do not restart confused",
            "it confuses possibilities 1 and 2: tokens that attend to earlier "
            "documents, and positions that do not restart",
            renumber(packed_model, {1: 2, 2: 1}),
        ),
    ),
)
