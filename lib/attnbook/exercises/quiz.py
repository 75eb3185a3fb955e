"""Quizzes: questions as data, shown so that they can be read everywhere.

A quiz is a JSON file beside this module: `title` and `questions`, each with a
`prompt`, two to five `choices` (`text`, `feedback`, and for a wrong one the
`misconception` it stands for) and `right`, the index of the right choice.
Texts may hold $math$ and `code`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from attnbook.exercises.quiz_text import (
    format_html,
    format_text,
    require_closed,
    split_segments,
)
from attnbook.widgets.mount import render_mount

FOLDER = Path(__file__).with_name("quizzes")


@dataclass(frozen=True)
class Choice:
    """One choice: its text, its feedback and its misconception."""

    text: str
    feedback: str
    misconception: str | None = None


@dataclass(frozen=True)
class Question:
    """A prompt, its choices, and the index of the right one."""

    prompt: str
    choices: tuple[Choice, ...]
    right: int


@dataclass(frozen=True)
class Quiz:
    """A chapter's questions; displays itself as HTML or as text."""

    name: str
    title: str
    questions: tuple[Question, ...]

    def state(self) -> dict:
        """Return what the page's widget reads, as plain data."""
        return {
            "name": self.name,
            "title": self.title,
            "questions": [
                {
                    "prompt": split_segments(question.prompt),
                    "choices": [
                        {
                            "content": split_segments(choice.text),
                            "feedback": split_segments(choice.feedback),
                            "right": i == question.right,
                        }
                        for i, choice in enumerate(question.choices)
                    ],
                }
                for question in self.questions
            ],
        }

    def __repr__(self) -> str:
        return format_text(self)

    def _repr_mimebundle_(self, **kwargs) -> dict[str, str]:
        """Return a static mount, readable without JavaScript, and text."""
        mount = render_mount("quiz", self.state(), format_html(self))
        return {"text/html": mount, "text/plain": format_text(self)}


def quiz(name: str) -> Quiz:
    """Return a chapter's quiz, for example `quiz("01_bottleneck")`.

    Raises:
        ValueError: if there is none of that name, or its file is broken.
    """
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.json")))
        raise ValueError(f"there is no quiz {name!r}; there are: {known}")
    try:
        data = json.loads(path.read_text("utf8"))
    except ValueError as error:  # bad JSON or bad UTF-8
        raise ValueError(f"quiz {name} is not JSON: {error}") from None
    return parse_quiz(name, data)


def parse_quiz(name: str, data: object) -> Quiz:
    """Read a quiz from data, or raise an error that names what is wrong.

    Raises:
        ValueError: naming the quiz, the place in it and what was meant.
    """
    where = f"quiz {name}"
    title, questions = read_fields(data, where, {"title": str, "questions": list})
    if not 4 <= len(questions) <= 6:
        raise ValueError(
            f"{where} has {len(questions)} questions and should have 4 to 6"
        )
    return Quiz(
        name,
        title,
        tuple(
            parse_question(question, f"{where}, question {number}")
            for number, question in enumerate(questions, start=1)
        ),
    )


def parse_question(data: object, where: str) -> Question:
    """Read one question; every wrong choice must name its misconception."""
    kinds = {"prompt": str, "choices": list, "right": int}
    prompt, given, right = read_fields(data, where, kinds)
    if not 2 <= len(given) <= 5:
        raise ValueError(f"{where} has {len(given)} choices and should have 2 to 5")
    if not 0 <= right < len(given):
        raise ValueError(
            f"{where}: `right` is {right} but the choices are numbered "
            f"0 to {len(given) - 1}"
        )
    choices = []
    for i, choice in enumerate(given):
        kinds = {"text": str, "feedback": str}
        if i != right:
            kinds["misconception"] = str
        choices.append(Choice(*read_fields(choice, f"{where}, choice {i}", kinds)))
    texts = [choice.text for choice in choices]
    if len(set(texts)) < len(texts):
        raise ValueError(f"{where} offers the same choice twice")
    for text in (prompt, *texts, *(choice.feedback for choice in choices)):
        require_closed(text, where)
    return Question(prompt, tuple(choices), right)


def read_fields(data: object, where: str, kinds: dict[str, type]) -> list:
    """Return the values of an object that must have exactly these fields."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object but {data!r:.60}")
    if set(data) != set(kinds):
        raise ValueError(
            f"{where} has the fields {sorted(data)} and should have {sorted(kinds)}"
        )
    for field, kind in kinds.items():
        value = data[field]
        if type(value) is not kind or value in ("", []):
            raise ValueError(
                f"{where}: `{field}` is {value!r:.60} and should be a "
                f"{kind.__name__}, not empty"
            )
    return [data[field] for field in kinds]
