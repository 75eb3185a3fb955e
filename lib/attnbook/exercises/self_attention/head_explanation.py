"""Exercise: design sentences that separate explanations of what a head does.

Axes: positions of the words of one sentence
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake

EXPLANATIONS = ("word", "first noun", "distance", "meaning")
OTHERS = (
    "the word before",
    "the last word",
    "word, if the last word is heavy",
    "first noun, without extra words",
)
NOUNS = (
    *("stone", "window", "hammer", "bottle", "ball", "mirror", "brick"),
    *("plate", "branch", "roof", "box", "shelf", "lamp", "table"),
)


@dataclass(frozen=True)
class Head:
    """A head that attends from *it* to one word, for one of many reasons.

    `head(first, second, last, extra)` returns the position of the word with
    the largest weight in *the FIRST broke the SECOND because it was LAST*,
    with `extra` more words before *it*.

    Attributes:
        reason: one of `EXPLANATIONS` or `OTHERS`.
        noun: the word of the explanation "word".
    """

    reason: str
    noun: str

    def __call__(self, first: str, second: str, last: str, extra: int) -> int:
        """Return the position that gets the largest weight from *it*.

        Args:
            first: the noun at position 1.
            second: the noun at position 4.
            last: "heavy" or "thin".
            extra: how many words stand between *because* and *it*.

        Raises:
            ValueError: if the nouns are the same word or no words, the last
                word is another, or the number of extra words is negative.
        """
        if not (first and second) or first == second:
            raise ValueError(
                f"the nouns are {first!r} and {second!r}; they must be two "
                "different words"
            )
        if last not in ("heavy", "thin"):
            raise ValueError(f"the last word is {last!r} but must be 'heavy' or 'thin'")
        if extra < 0 or extra != int(extra):
            raise ValueError(
                f"there are {extra} extra words; give 0 or a whole number above"
            )
        it = 6 + int(extra)
        word = {first: 1, second: 4}.get(self.noun, it)
        return {
            "word": word,
            "first noun": 1,
            "distance": it - 5,
            "meaning": 1 if last == "heavy" else 4,
            "the word before": it - 1,
            "the last word": it + 2,
            "word, if the last word is heavy": word if last == "heavy" else it,
            "first noun, without extra words": 1 if not extra else it,
        }[self.reason]


def head_explanation(head: Callable, noun: str, other: str) -> int:
    """Return what decides where a head attends from *it*: 0 to 4.

    0: the word `noun`, wherever it is. 1: the first noun. 2: the distance of
    five words. 3: the noun that *it* refers to. 4: none of these.

    Args:
        head: (first, second, last, extra) to the position with the largest
            weight.
        noun: the first noun of the original sentence.
        other: its second noun.
    """
    nouns = (noun, other), (other, noun), (other, "thing")
    found, predicted = [], []
    for pair, last, extra in product(nouns, ("heavy", "thin"), (0, 1)):
        found.append(head(*pair, last, extra))
        it, position = 6 + extra, {pair[0]: 1, pair[1]: 4}
        meant = 1 if last == "heavy" else 4
        predicted.append((position.get(noun, it), 1, it - 5, meant))
    columns = [list(column) for column in zip(*predicted, strict=True)]
    return columns.index(found) if found in columns else 4


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each explanation and some other heads twice, in any order."""
    reasons = 2 * (*EXPLANATIONS, *OTHERS)
    cases = []
    for i in torch.randperm(len(reasons), generator=rng).tolist():
        a, b = torch.randperm(len(NOUNS), generator=rng)[:2].tolist()
        head, tries = (
            Head(reasons[i], NOUNS[a]),
            f"a head that attends by “{reasons[i]}”",
        )
        cases.append(Case(f"with {tries}", (head, NOUNS[a], NOUNS[b])))
    return tuple(cases)


Sentence = tuple[str, str, str, int]


def make_design(
    *sentences: Sentence,
    other: int = 4,
    order: tuple[int, ...] = (0, 1, 2, 3),
):
    """Return an experiment with other sentences, or another last answer.

    In the sentences, A is the first noun of the original and B the second.
    """

    def answer(head, noun, second):
        names = {"A": noun, "B": second}
        shown = [(*(names.get(x, x) for x in s[:2]), *s[2:]) for s in sentences]
        for explanation in range(4):
            model = Head(EXPLANATIONS[order[explanation]], noun)
            if all(head(*s) == model(*s) for s in shown):
                return explanation
        return other

    return answer


PICTURE: Sentence = ("A", "B", "heavy", 0)
EVERY: tuple[Sentence, ...] = tuple(
    (*nouns, last, extra)
    for nouns in (("A", "B"), ("B", "A"))
    for last in ("heavy", "thin")
    for extra in (0, 1)
)

check_head_explanation = Exercise(
    title="an experiment that separates explanations of a head",
    stars=3,
    minutes=20,
    section="What attention weights do not show",
    solution=head_explanation,
    key_line="predicted.append((position.get(noun, it), 1, it - 5, meant))",
    returns=("explanation",),
    draw=draw,
    mistakes=(
        Mistake(
            "one-picture",
            "only the sentence of the picture",
            "it looks only at the original sentence, for which all four "
            "explanations predict the same word",
            make_design(PICTURE),
        ),
        Mistake(
            "meaning-from-one-picture",
            "meaning concluded from one sentence",
            "it concludes from the original sentence alone that the head "
            "finds what *it* refers to",
            lambda head, noun, other: 3 if head(noun, other, "heavy", 0) == 1 else 4,
        ),
        Mistake(
            "nouns-only",
            "only the nouns are swapped",
            "it only swaps the nouns. The explanations by first noun, by "
            "distance and by meaning then predict the same word",
            make_design(PICTURE, ("B", "A", "heavy", 0)),
        ),
        Mistake(
            "last-word-only",
            "only the last word is changed",
            "it only changes the last word. The explanations by word, by "
            "first noun and by distance then predict the same word",
            make_design(PICTURE, ("A", "B", "thin", 0)),
        ),
        Mistake(
            "distance-only",
            "only extra words are inserted",
            "it only inserts words. The explanations by word, by first noun "
            "and by meaning then predict the same word",
            make_design(PICTURE, ("A", "B", "heavy", 1)),
        ),
        Mistake(
            "swapped-and-thin",
            "nouns and last word changed together",
            "it swaps the nouns and changes the last word in the same "
            "sentence. The original first noun is then also what *it* refers "
            "to",
            make_design(PICTURE, ("B", "A", "thin", 1)),
        ),
        Mistake(
            "swapped-and-longer",
            "the last word is never changed",
            "it never changes the last word. The first noun is then always "
            "what *it* refers to",
            make_design(*(s for s in EVERY if s[2] == "heavy")),
        ),
        Mistake(
            "never-longer",
            "the distance is never changed",
            "it never inserts a word. The first noun is then always five "
            "words before *it*",
            make_design(*(s for s in EVERY if s[3] == 0)),
        ),
        Mistake(
            "never-swapped",
            "the nouns are never swapped",
            "it never swaps the nouns. The first noun is then always the same word",
            make_design(*(s for s in EVERY if s[0] == "A")),
        ),
        Mistake(
            "no-negative",
            "no answer for other heads",
            "it never returns 4; return 4 if no explanation predicts what the "
            "head does",
            make_design(*EVERY, other=3),
        ),
        Mistake(
            "one-design",
            "a single sentence without a control",
            "it tries one sentence only. A head that fits none of the "
            "explanations can attend to the predicted word there by "
            "coincidence",
            make_design(("B", "thing", "thin", 2)),
        ),
        Mistake(
            "labels-swapped",
            "word and meaning confused",
            "its numbers for word and meaning are swapped",
            make_design(*EVERY, order=(3, 1, 2, 0)),
        ),
        Mistake(
            "always-meaning",
            "the head is not run",
            "it does not run the head",
            lambda head, noun, other: 3,
        ),
    ),
)
