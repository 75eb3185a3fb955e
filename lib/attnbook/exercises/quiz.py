"""Quizzes: questions as data, shown so that they can be read everywhere.

A quiz is a JSON file beside this module: `title` and `questions`, each with a
`prompt`, two to five `choices` (`text`, `feedback`, and for a wrong one the
`misconception` it stands for) and `right`, the index of the right choice.
Texts may hold $math$ and `code`.
"""

import json
import re
import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path

from attnbook.widgets.mount import render_mount

FOLDER = Path(__file__).with_name("quizzes")
MARKED = re.compile(r"\$([^$]+)\$|`([^`]+)`")
LETTERS = "abcde"


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

    def state(self) -> dict:
        """Return what the page's widget reads, as plain data."""
        choices = [
            {
                "content": split_segments(choice.text),
                "feedback": split_segments(choice.feedback),
                "right": i == self.right,
            }
            for i, choice in enumerate(self.choices)
        ]
        return {"prompt": split_segments(self.prompt), "choices": choices}

    def wrap(self, label: str) -> list[str]:
        """Return the prompt and the choices as lines of text."""
        lines = wrap_text(label, self.prompt)
        for letter, choice in zip(LETTERS, self.choices, strict=False):
            lines += wrap_text(f"   {letter}) ", choice.text)
        return lines

    def format(self) -> str:
        """Return HTML that needs no JavaScript: the answer folds out."""
        texts = (f"<li>{format_inline(x.text)}</li>" for x in self.choices)
        feedback = (f"<li>{format_inline(x.feedback)}</li>" for x in self.choices)
        return (
            f"<li><p>{format_inline(self.prompt)}</p>"
            f'<ol class="quiz-choices" type="a">{"".join(texts)}</ol>'
            "<details><summary>Answer</summary>"
            f"<p>Right is <strong>{LETTERS[self.right]}</strong>.</p>"
            f'<ol class="quiz-feedback" type="a">{"".join(feedback)}</ol>'
            "</details></li>"
        )


@dataclass(frozen=True)
class Quiz:
    """A chapter's questions; displays itself as HTML or as text."""

    name: str
    title: str
    questions: tuple[Question, ...]

    def state(self) -> dict:
        """Return what the page's widget reads, as plain data."""
        questions = [question.state() for question in self.questions]
        return {"name": self.name, "title": self.title, "questions": questions}

    def __repr__(self) -> str:
        """Return the quiz as text, with the answers at the end."""
        lines = [self.title, ""]
        for number, question in enumerate(self.questions, start=1):
            lines += [*question.wrap(f"{number}. "), ""]
        answers = (f"{n}{LETTERS[x.right]}" for n, x in enumerate(self.questions, 1))
        return "\n".join([*lines, f"Answers: {' '.join(answers)}"])

    def _repr_mimebundle_(self, **kwargs) -> dict[str, str]:
        """Return a static mount, readable without JavaScript, and text."""
        fallback = (
            f'<p class="quiz-title"><strong>{escape(self.title)}</strong></p>'
            f'<ol class="quiz">{"".join(x.format() for x in self.questions)}</ol>'
        )
        mount = render_mount("quiz", self.state(), fallback)
        return {"text/html": mount, "text/plain": repr(self)}


def quiz(name: str) -> Quiz:
    """Return a chapter's quiz, for example `quiz("01_bottleneck")`.

    Raises:
        ValueError: if there is none of that name.
    """
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.json")))
        raise ValueError(f"there is no quiz {name!r}; there are: {known}")
    data = json.loads(path.read_text("utf8"))
    questions = (
        Question(x["prompt"], tuple(Choice(**y) for y in x["choices"]), x["right"])
        for x in data["questions"]
    )
    return Quiz(name, data["title"], tuple(questions))


def split_segments(text: str) -> list[dict[str, str]]:
    """Split a text into `text`, `math` and `code` pieces, in order."""
    pieces, end = [], 0
    for found in MARKED.finditer(text):
        pieces.append({"text": text[end : found.start()]})
        math, code = found.groups()
        pieces.append({"math": math} if math else {"code": code})
        end = found.end()
    pieces.append({"text": text[end:]})
    return [piece for piece in pieces if piece != {"text": ""}]


def format_inline(text: str) -> str:
    """Return a text as HTML; what comes from the text is escaped."""
    forms = {
        "text": "{}",
        "math": r'<span class="math">\({}\)</span>',
        "code": "<code>{}</code>",
    }
    return "".join(
        forms[kind].format(escape(words))
        for piece in split_segments(text)
        for kind, words in piece.items()
    )


def wrap_text(label: str, text: str) -> list[str]:
    """Return a labelled text as lines with a hanging indent."""
    text = MARKED.sub(lambda found: found[1] or found[2], text)
    indent = " " * len(label)
    return textwrap.wrap(text, 76, initial_indent=label, subsequent_indent=indent)
