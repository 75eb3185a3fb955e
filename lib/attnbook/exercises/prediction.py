"""Predict first: a question that covers a result until it is answered.

On the built page, everything that follows the question in its section is
covered until the reader answers or skips it. In a notebook it is a plain
question with a folded answer. What was measured comes from the code:

    predict(
        "Which words lose most without attention?",
        choices=[
            ("short ones", "They fit into one vector."),
            ("long ones", "The vector has one size for every word."),
        ],
        right=int(lost["long"] > lost["short"]),
    )

    predict_number(
        "How many of 100 long words does the model get wrong?",
        low=0, high=100, measured=lost["long"], unit="%",
    )
"""

from collections.abc import Sequence
from dataclasses import dataclass

from attnbook.exercises.quiz import (
    LETTERS,
    format_inline,
    format_question,
    require_closed,
    split_segments,
    wrap_text,
)
from attnbook.widgets.mount import render_mount


@dataclass(frozen=True)
class Option:
    """One choice: its text, and what is said of it afterwards."""

    text: str
    feedback: str


@dataclass(frozen=True)
class Prediction:
    """A question with choices, of which one was measured.

    Displays itself as HTML or as text.
    """

    prompt: str
    choices: tuple[Option, ...]
    right: int

    def state(self) -> dict:
        """Return what the page's widget reads, as plain data."""
        choices = [
            {
                "content": split_segments(choice.text),
                "feedback": split_segments(choice.feedback),
                "right": number == self.right,
            }
            for number, choice in enumerate(self.choices)
        ]
        return {
            "question": {
                "prompt": split_segments(self.prompt),
                "choices": choices,
            }
        }

    def fallback(self) -> str:
        """Return HTML that needs no JavaScript: the answer folds out."""
        return f'<ol class="quiz">{format_question(self)}</ol>'

    def __repr__(self) -> str:
        lines = wrap_text("Predict first: ", self.prompt)
        for letter, choice in zip(LETTERS, self.choices, strict=False):
            lines += wrap_text(f"   {letter}) ", choice.text)
        return "\n".join([*lines, f"Measured: {LETTERS[self.right]}"])

    def _repr_mimebundle_(self, **kwargs) -> dict[str, str]:
        """Return a static mount, readable without JavaScript, and text."""
        return show_question(self)


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
        question = {
            "prompt": split_segments(self.prompt),
            "low": self.low,
            "high": self.high,
            "step": self.step,
            "measured": self.measured,
            "unit": self.unit,
        }
        return {"question": question}

    def fallback(self) -> str:
        """Return HTML that needs no JavaScript: the answer folds out."""
        measured = format_inline(self._with_unit(self.measured))
        return (
            f"<p>{format_inline(self.prompt)} ({self.low:g} to {self.high:g}"
            f"{format_inline(self._with_unit(''))})</p><details><summary>Answer"
            f"</summary><p>The result is {measured}.</p></details>"
        )

    def _with_unit(self, number: str) -> str:
        return f"{number} {self.unit}".rstrip() if self.unit else number

    def __repr__(self) -> str:
        prompt = f"{self.prompt} ({self.low:g} to {self.high:g})"
        lines = wrap_text("Predict first: ", prompt)
        return "\n".join([*lines, f"Result: {self._with_unit(self.measured)}"])

    def _repr_mimebundle_(self, **kwargs) -> dict[str, str]:
        """Return a static mount, readable without JavaScript, and text."""
        return show_question(self)


def show_question(question: Prediction | NumberPrediction) -> dict[str, str]:
    """Return a question as a page and as a notebook show it."""
    mount = render_mount("prediction", question.state(), question.fallback())
    return {"text/html": mount, "text/plain": repr(question)}


def predict(prompt: str, choices: Sequence[tuple[str, str]], right: int) -> Prediction:
    """Ask what the reader expects, with choices.

    Args:
        prompt: the question. Texts may hold $math$ and `code`.
        choices: two to five pairs: a choice, and what is said of it.
        right: the index of the choice that was measured.

    Raises:
        ValueError: if there are too few or too many choices, two are alike,
            none has that index, or a $ or ` is not closed.
    """
    if not 2 <= len(choices) <= len(LETTERS):
        raise ValueError(
            f"a prediction has {len(choices)} choices and should have 2 to "
            f"{len(LETTERS)}"
        )
    if not 0 <= right < len(choices):
        raise ValueError(
            f"`right` is {right} but the choices are numbered 0 to {len(choices) - 1}"
        )
    options = tuple(Option(*pair) for pair in choices)
    texts = [option.text for option in options]
    if len({*texts}) < len(texts):
        raise ValueError(f"a prediction offers one choice twice: {texts}")
    for text in (prompt, *texts, *(option.feedback for option in options)):
        require_closed(text, "a prediction")
    return Prediction(prompt, options, right)


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
        measured: the result, measured or computed, shown with three
            significant digits.
        step: of the slider.
        unit: written after each number.

    Raises:
        ValueError: if what was measured lies beyond the slider, the slider
            has no steps, or a $ or ` is not closed.
    """
    if not low <= measured <= high:
        raise ValueError(
            f"{measured:g} was measured but the slider runs from {low:g} to {high:g}"
        )
    if not 0 < step <= high - low:
        raise ValueError(
            f"step is {step:g} but the slider runs from {low:g} to {high:g}"
        )
    require_closed(prompt, "a prediction")
    shown = f"{float(measured):.3g}"
    return NumberPrediction(prompt, low, high, step, shown, unit)
