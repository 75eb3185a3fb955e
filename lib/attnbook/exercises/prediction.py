"""Predict first: a question that covers a result until it is answered.

On the built page, the output of the next cell is covered until the reader answers
or skips the question. In a notebook it is a plain question with a folded answer.
What was measured comes from the code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from attnbook.exercises.quiz import (
    LETTERS,
    Choice,
    Question,
    format_inline,
    split_segments,
    wrap_text,
)
from attnbook.widgets.mount import render_mount


class Prediction(Question):
    """A question with choices, of which one was measured; displays itself."""

    def __repr__(self) -> str:
        lines = self.wrap("Predict first: ")
        return "\n".join([*lines, f"Measured: {LETTERS[self.right]}"])

    def _repr_mimebundle_(self, **kwargs) -> dict[str, str]:
        """Return a static mount, readable without JavaScript, and text."""
        return show(self, f'<ol class="quiz">{self.format()}</ol>')


@dataclass(frozen=True)
class NumberPrediction:
    """A question whose answer is a number, chosen with a slider."""

    prompt: str
    low: int | float
    high: int | float
    step: int | float
    measured: str
    unit: str

    def state(self) -> dict:
        """Return what the page's widget reads, as plain data."""
        return vars(self) | {"prompt": split_segments(self.prompt)}

    def __repr__(self) -> str:
        prompt = f"{self.prompt} ({self.low:g} to {self.high:g})"
        lines = wrap_text("Predict first: ", prompt)
        return "\n".join([*lines, f"Result: {self.measured} {self.unit}".rstrip()])

    def _repr_mimebundle_(self, **kwargs) -> dict[str, str]:
        """Return a static mount, readable without JavaScript, and text."""
        scale = f"{self.low:g} to {self.high:g} {self.unit}".rstrip()
        measured = f"{self.measured} {self.unit}".rstrip()
        fallback = (
            f"<p>{format_inline(f'{self.prompt} ({scale})')}</p>"
            "<details><summary>Answer</summary>"
            f"<p>The result is {format_inline(measured)}.</p></details>"
        )
        return show(self, fallback)


def show(question: Prediction | NumberPrediction, fallback: str) -> dict[str, str]:
    """Return a question as a page and as a notebook show it."""
    mount = render_mount("prediction", {"question": question.state()}, fallback)
    return {"text/html": mount, "text/plain": repr(question)}


def predict(prompt: str, choices: Sequence[tuple[str, str]], right: int) -> Prediction:
    """Ask what the reader expects, with choices.

    Args:
        prompt: the question. Texts may hold $math$ and `code`.
        choices: two to five pairs: a choice, and what is said of it.
        right: the index of the choice that was measured.

    Raises:
        ValueError: if none has that index.
    """
    if not 0 <= right < len(choices) <= len(LETTERS):
        raise ValueError(
            f"`right` is {right} but the choices are numbered 0 to {len(choices) - 1}"
        )
    return Prediction(prompt, tuple(Choice(*pair) for pair in choices), right)


def predict_number(
    prompt: str,
    low: int | float,
    high: int | float,
    measured: int | float,
    *,
    step: int | float = 1,
    unit: str = "",
) -> NumberPrediction:
    """Ask what the reader expects, with a slider.

    Args:
        prompt: the question. It may hold $math$ and `code`.
        low: left end of the slider.
        high: right end of the slider.
        measured: the result, shown with three significant digits.
        step: of the slider.
        unit: written after each number.

    Raises:
        ValueError: if what was measured lies beyond the slider.
    """
    if not low <= measured <= high:
        raise ValueError(
            f"{measured:g} was measured but the slider runs from {low:g} to {high:g}"
        )
    shown = f"{float(measured):.3g}"
    return NumberPrediction(prompt, low, high, step, shown, unit)
