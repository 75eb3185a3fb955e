"""Exercise: design an input that explains a perfect accuracy.

Source: the mistakes are those of public implementations, linked in the chapter
Axes: B batch, T positions
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import shuffle_cases

EXPLANATIONS = ("learned", "copies", "skips", "leaks", "memorized")


@dataclass
class CountingModel:
    """A language model with perfect accuracy in training, for some reason.

    Called with symbols (B, T), it returns its predictions (B, T).

    Attributes:
        reason: one of `EXPLANATIONS`.
        symbols: how many there are.
        start: the first symbol of every sequence in training.
    """

    reason: str
    symbols: int
    start: int

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the most probable symbol at each position."""
        if self.reason == "copies":
            return ids.clone()
        if self.reason == "memorized":
            place = torch.arange(ids.shape[1]).expand_as(ids)
            return (self.start + place + 1) % self.symbols
        counted = (ids + (2 if self.reason == "skips" else 1)) % self.symbols
        if self.reason == "leaks":
            return torch.cat([ids[:, 1:], counted[:, -1:]], dim=1)
        return counted


def accuracy_explanation(model: Callable, ids: Tensor, symbols: int) -> int:
    """Return why a model has a perfect accuracy, as a number.

    0: it has learned to count. 1: it copies its input (labels not shifted).
    2: it predicts the symbol after the next (labels shifted twice). 3: it
    attends to the next symbol (no causal mask). 4: it has memorized the
    training sequence and ignores its input.

    Args:
        model: symbols (B, T) to predictions (B, T).
        ids: an example of the training sequences, which count in a circle.
        symbols: how many there are.
    """
    rng = torch.Generator().manual_seed(0)
    probe = torch.randint(symbols, (8, ids.shape[1]), generator=rng)
    predicted, now, after = model(probe)[:, :-1], probe[:, :-1], probe[:, 1:]
    expected = [(now + 1) % symbols, now, (now + 2) % symbols, after]
    for number, prediction in enumerate(expected):
        if torch.equal(predicted, prediction):
            return number
    return 4


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each explanation, for several numbers of symbols and lengths."""
    cases = []
    for symbols, length in (7, 6), (11, 9), (5, 12):
        for reason in EXPLANATIONS:
            start = int(torch.randint(symbols, (), generator=rng))
            ids = ((start + torch.arange(length)) % symbols).expand(3, -1)
            what = {
                "learned": "has learned to count",
                "copies": "copies its input",
                "skips": "predicts the symbol after the next",
                "leaks": "attends to the next symbol",
                "memorized": "has memorized the sequence",
            }[reason]
            cases.append(
                Case(
                    f"with {symbols} symbols and a model that {what}",
                    (
                        CountingModel(reason, symbols, start),
                        ids.clone(),
                        symbols,
                    ),
                )
            )
    return shuffle_cases(tuple(cases), rng)


check_accuracy_explanation = Exercise(
    title="an input that explains a perfect accuracy",
    stars=3,
    minutes=20,
    section="The decoder-only Transformer: a language model",
    solution=accuracy_explanation,
    key_line="predicted, now, after = model(probe)[:, :-1], probe[:, "
    ":-1], probe[:, 1:]",
    returns=("explanation",),
    draw=draw,
    mistakes=(
        Mistake(
            "training-data",
            "tested on training data",
            "it tests the model on a training sequence. On it, memorizing, "
            "attending to the next symbol and counting give the same "
            "predictions",
            "torch.randint(symbols, (8, ids.shape[1]), generator=rng) → ids",
        ),
        Mistake(
            "another-start",
            "another start of the same count",
            "its input counts up as in training and only begins with another "
            "symbol. A model that attends to the next symbol predicts the "
            "same as one that counts",
            "torch.randint(symbols, (8, ids.shape[1]), generator=rng) "
            "→ (ids + 1) % symbols",
        ),
        Mistake(
            "constant-input",
            "one symbol repeated",
            "its input repeats one symbol, so copying the input and attending "
            "to the next symbol predict the same symbols",
            "torch.randint(symbols, (8, ids.shape[1]), generator=rng) "
            "→ torch.zeros_like(ids)",
        ),
        Mistake(
            "last-position",
            "only the last prediction",
            "it looks only at the last position, after which there is no "
            "symbol to attend to",
            "[:, :-1], probe[:, :-1], probe[:, 1:] → "
            "[:, -1], probe[:, -1], probe[:, 0]",
        ),
        Mistake(
            "leak-as-memory",
            "attending to the next symbol not considered",
            "it does not consider that the model may attend to the next symbol",
            renumber(accuracy_explanation, {3: 4}),
        ),
        Mistake(
            "copy-not-considered",
            "copying not considered",
            "it does not consider that the model may copy its input",
            renumber(accuracy_explanation, {1: 4}),
        ),
        Mistake(
            "otherwise-learned",
            "learned unless shown otherwise",
            "it returns 0 whenever explanations 1 to 3 do not fit; this model "
            "has memorized the sequence, which is explanation 4",
            renumber(accuracy_explanation, {4: 0}),
        ),
        Mistake(
            "shifts-swapped",
            "the two shifts confused",
            "it confuses explanations 1 and 2: labels not shifted, and shifted twice",
            renumber(accuracy_explanation, {1: 2, 2: 1}),
        ),
        Mistake(
            "leak-and-memory-swapped",
            "leak and memorization confused",
            "it confuses explanations 3 and 4: a model that has memorized "
            "the sequence ignores its input",
            renumber(accuracy_explanation, {3: 4, 4: 3}),
        ),
    ),
)
