"""Exercise: design inputs that show what determines where a head attends.

Source: confounded explanations of one attention map; the head is ours
Axes: S positions
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake

EXPLANATIONS = ("distance", "position", "word", "row")


@dataclass
class Head:
    """The last query's weights, for one of four reasons.

    `head(words, positions)` returns weights (S,) for words (S,) at positions
    (S,), of which the last is that of the query.

    Attributes:
        reason: "distance", "position", "word" or "row".
        back: how far back the attended key is.
        position: of the attended key.
        word: of the attended key.
    """

    reason: str
    back: int
    position: int
    word: int

    def __call__(
        self, words: Int[Tensor, "S"], positions: Int[Tensor, "S"]
    ) -> Float[Tensor, "S"]:
        """Return the weights of the last query.

        Raises:
            ValueError: if there are not as many words as positions.
        """
        if words.shape != positions.shape:
            raise ValueError(
                f"there are {tuple(words.shape)} words but "
                f"{tuple(positions.shape)} positions"
            )
        rows = torch.arange(len(words))
        attended = {
            "distance": positions == positions[-1] - self.back,
            "position": positions == self.position,
            "word": words == self.word,
            "row": rows == len(words) - 1 - self.back,
        }[self.reason]
        # Every head also depends a little on all words and positions.
        scores = (1.7 * words + 0.9 * positions).sin() * 0.3
        return torch.where(attended, 8.0, scores.float()).softmax(-1)


def position_use(
    head: Callable, words: Int[Tensor, "S"], positions: Int[Tensor, "S"]
) -> int:
    """Return what determines the attended key, as the number of an explanation.

    0: its distance from the query. 1: its position. 2: its word. 3: its row in
    the tensor, whatever positions are given.

    Args:
        head: (words, positions) to the weights of the last query (S,).
        words: an example.
        positions: of the example, 0 to S - 1.
    """
    key = int(head(words, positions).argmax())

    def attends(words: Tensor, positions: Tensor) -> bool:
        return head(words, positions)[key].item() > 0.5

    other = words.clone()
    other[key] = words.max() + 1
    if not attends(words, positions + 100):
        return 1
    if not attends(other, positions):
        return 2
    # Twice the positions: twice the distances, in the same rows.
    return 3 if attends(words, 2 * positions) else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each explanation, in any order, for several lengths."""
    names = {
        "distance": "the distance",
        "position": "the position",
        "word": "the word",
        "row": "the row",
    }
    cases = []
    for S in 6, 9, 13:
        order = torch.randperm(len(EXPLANATIONS), generator=rng)
        for reason in (EXPLANATIONS[i] for i in order):
            words = torch.randperm(50, generator=rng)[:S]
            key = int(torch.randint(2, S - 1, (), generator=rng))
            head = Head(reason, S - 1 - key, key, int(words[key]))
            cases.append(
                Case(
                    f"with {S} words and a head that attends by {names[reason]}",
                    (head, words, torch.arange(S)),
                )
            )
    return tuple(cases)


check_position_use = Exercise(
    title="inputs that show what a head goes by",
    stars=3,
    minutes=20,
    section="Where positions enter: embeddings, queries and keys, or scores",
    solution=position_use,
    returns=("explanation",),
    draw=draw,
    mistakes=(
        Mistake(
            "example-only",
            "only the example tried",
            "it tries only the given example, for which all four explanations "
            "predict the same weights",
            lambda head, words, positions: 0,
        ),
        Mistake(
            "shift-not-tested",
            "positions never moved",
            "it never moves all positions by the same number, so it cannot "
            "distinguish a position from a distance",
            "return 1 → pass",
        ),
        Mistake(
            "word-not-tested",
            "words never replaced",
            "it never replaces the attended word, so a head that attends by "
            "the word looks as if it attended by the row",
            "return 2 → pass",
        ),
        Mistake(
            "gap-not-tested",
            "distances never changed",
            "it never changes the distance of the attended row, so it cannot "
            "distinguish a distance from a row",
            "return 3 if → return 0 if",
        ),
        Mistake(
            "gap-in-the-past",
            "gap before the attended key",
            "its gap lies before the attended key, so the distance from the "
            "query to this key stays the same",
            "2 * positions) else → positions + 60 * (positions >= key)) else",
        ),
        Mistake(
            "both-at-once",
            "word and positions changed at once",
            "it replaces the word and moves the positions in one input; if the "
            "weight changes, this does not show which of them was the reason",
            (
                "attends(words, positions + 100) → attends(other, positions + 100)",
                "return 2 → pass",
            ),
        ),
        Mistake(
            "exact-comparison",
            "weights compared exactly",
            "it compares weights exactly, and they change a little; compare "
            "which key gets the largest weight",
            (
                "key = → found = head(words, positions)\n    key =",
                "head(words, positions)[key].item() > 0.5 → "
                "torch.equal(head(words, positions), found)",
            ),
        ),
        Mistake(
            "shift-only",
            "only a common shift tried",
            "it only moves all positions; distance, word and row stay the same",
            ("return 2 → pass", "return 3 if → return 0 if"),
        ),
        Mistake(
            "words-only",
            "only words replaced",
            "it only replaces the word; distance, position and row stay the same",
            ("return 1 → pass", "return 3 if → return 0 if"),
        ),
        Mistake(
            "absolute-and-relative-confused",
            "position and distance confused",
            "it confuses position and distance: a head that attends by the "
            "distance is not affected if all positions move together",
            renumber(position_use, {0: 1, 1: 0}),
        ),
        Mistake(
            "counted-from-one",
            "explanations counted from 1",
            "its numbers are one too high: the first explanation is 0",
            lambda *given: position_use(*given) + 1,
        ),
    ),
)
