"""Exercise: design an experiment that separates explanations of an alignment.

Axes: S source words
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake

EXPLANATIONS = ("slot", "position", "word", "other")


@dataclass
class Aligner:
    """A model that attends to one slot, for one of four reasons.

    `model(words, slots, t)` returns the slot with the largest weight, when the
    output word t is generated, whose translation is source word t.

    Attributes:
        reason: "slot", "position", "word" or "other".
        always: the slot of a model with another reason.
    """

    reason: str
    always: int = 0

    def __call__(self, words: Sequence[int], slots: Sequence[int], t: int) -> int:
        """Return the slot with the largest weight.

        Args:
            words: the word that the encoder reads at each position.
            slots: the position whose encoder state is put into each slot.
            t: an output word, from 0 to S - 1.

        Raises:
            ValueError: if words or slots are not 0 to S - 1 in some order.
        """
        words, slots = [int(x) for x in words], [int(x) for x in slots]
        size = len(words)
        for name, order in ("words", words), ("slots", slots):
            if sorted(order) != list(range(size)):
                raise ValueError(
                    f"{name} must be the numbers 0 to {size - 1} in some "
                    f"order, not {order}"
                )
        return {
            "slot": t,
            "position": slots.index(t),
            "word": slots.index(words.index(t)),
            "other": self.always % size,
        }[self.reason]


def rotate(S: int, by: int = 1) -> list[int]:
    """Return 0 to S - 1, rotated by some positions."""
    return [(i + by) % S for i in range(S)]


def alignment_explanation(model: Callable, S: int) -> int:
    """Return why a model attends to the right slot: 0, 1, 2 or 3.

    0: it attends to slot t. 1: to the state that was computed at position t.
    2: to the state at which word t was read. 3: none of these.

    Args:
        model: (words, slots, t) to the slot with the largest weight.
        S: how many words the sentence has, at least 3.
    """
    words = slots = [*range(1, S), 0]  # rotated by one; together, by two
    found = [model(words, slots, t) for t in range(S)]
    predicted = (
        [t for t in range(S)],
        [slots.index(t) for t in range(S)],
        [slots.index(words.index(t)) for t in range(S)],
    )
    return predicted.index(found) if found in predicted else 3


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each explanation, in any order, for sentences of several lengths."""
    cases = []
    for size in (5, 4, 3, 6, 7):
        order = torch.randperm(len(EXPLANATIONS), generator=rng)
        for reason in (EXPLANATIONS[i] for i in order):
            always = int(torch.randint(size, (), generator=rng))
            always = {5: 0, 4: 3}.get(size, always)  # the first, the last
            what = f"by {reason}" if reason != "other" else "to one slot only"
            cases.append(
                Case(
                    f"with {size} words and a model that attends {what}",
                    (Aligner(reason, always), size),
                )
            )
    return tuple(cases)


def make_design(
    words: Callable = rotate,
    slots: Callable = rotate,
    steps: Callable = range,
    other: bool = True,
):
    """Return an experiment with other orders, or other output words."""

    def answer(model, S):
        read, put = words(S), slots(S)
        found = [model(read, put, t) for t in steps(S)]
        predicted = (
            [t for t in steps(S)],
            [put.index(t) for t in steps(S)],
            [put.index(read.index(t)) for t in steps(S)],
        )
        if found in predicted:
            return predicted.index(found)
        return 3 if other else 2

    return answer


def keep_order(S: int) -> list[int]:
    """Return 0 to S - 1."""
    return list(range(S))


def reverse_order(S: int) -> list[int]:
    """Return S - 1 to 0."""
    return list(range(S))[::-1]


def swap_first_two(S: int) -> list[int]:
    """Return 0 to S - 1 with the first two swapped."""
    return [1, 0, *range(2, S)]


check_alignment_explanation = Exercise(
    title="an experiment that separates three explanations",
    stars=3,
    minutes=20,
    section="Why alignments fail in long sentences",
    solution=alignment_explanation,
    returns=("explanation",),
    draw=draw,
    mistakes=(
        Mistake(
            "nothing-changed",
            "nothing is changed",
            "it leaves words and states in their order, where all three "
            "explanations predict the same slot",
            make_design(words=keep_order, slots=keep_order),
        ),
        Mistake(
            "words-only",
            "only the words are moved",
            "it moves only the words. Then the state of position t is in slot "
            "t, so the explanations by slot and by position predict the same "
            "slot",
            make_design(slots=keep_order),
        ),
        Mistake(
            "states-only",
            "only the states are moved",
            "it moves only the states. Then word t was read at position t, so "
            "the explanations by position and by word predict the same slot",
            make_design(words=keep_order),
        ),
        Mistake(
            "moves-cancel",
            "the two moves cancel",
            "the two moves cancel: every word is back in its slot, so the "
            "explanations by slot and by word predict the same slot",
            make_design(words=reverse_order, slots=reverse_order),
        ),
        Mistake(
            "moves-cancel-by-rotation",
            "the states are rotated back",
            "the states are moved back to where their words came from, so the "
            "explanations by slot and by word predict the same slot",
            make_design(slots=lambda S: rotate(S, -1), steps=lambda S: [0]),
        ),
        Mistake(
            "one-output-word",
            "only one output word",
            "it tries only one output word. A model that always attends to "
            "one slot then looks like one of the three",
            make_design(steps=lambda S: [0]),
        ),
        Mistake(
            "fixed-words",
            "the tested word is not moved",
            "it swaps the first two words and tests the last one, which has not moved",
            make_design(
                words=swap_first_two,
                slots=swap_first_two,
                steps=lambda S: [S - 1],
            ),
        ),
        Mistake(
            "no-negative",
            "no answer for other models",
            "it never returns 3; return 3 if no explanation predicts the slots "
            "that were attended to",
            make_design(other=False),
        ),
        Mistake(
            "always-word",
            "the model is not run",
            "it does not run the model",
            lambda model, S: 2,
        ),
        Mistake(
            "words-and-positions",
            "position and word confused",
            "its predictions for position and word are swapped",
            lambda model, S: (0, 2, 1, 3)[alignment_explanation(model, S)],
        ),
    ),
)
