"""Formatting of a quiz: as segments, as HTML and as plain text."""

import re
import textwrap
from html import escape

MARKED = re.compile(r"\$([^$]+)\$|`([^`]+)`")
LETTERS = "abcde"
WIDTH = 76


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


def require_closed(text: str, where: str) -> None:
    """Refuse a text in which a $ or ` is not closed.

    Raises:
        ValueError: naming where it stands, and the text.
    """
    if text.count("$") % 2 or text.count("`") % 2:
        raise ValueError(f"{where} has an unclosed $ or ` in: {text}")


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


def format_html(quiz) -> str:
    """Return a quiz as HTML that needs no JavaScript: answers fold out."""
    questions = "".join(format_question(x) for x in quiz.questions)
    return (
        f'<p class="quiz-title"><strong>{escape(quiz.title)}</strong></p>'
        f'<ol class="quiz">{questions}</ol>'
    )


def format_question(question) -> str:
    """Return a question, its choices, and the feedback on each."""
    choices = "".join(
        f"<li>{format_inline(choice.text)}</li>" for choice in question.choices
    )
    feedback = "".join(
        f"<li>{format_inline(choice.feedback)}</li>" for choice in question.choices
    )
    return (
        f"<li><p>{format_inline(question.prompt)}</p>"
        f'<ol class="quiz-choices" type="a">{choices}</ol>'
        "<details><summary>Answer</summary>"
        f"<p>Right is <strong>{LETTERS[question.right]}</strong>.</p>"
        f'<ol class="quiz-feedback" type="a">{feedback}</ol>'
        "</details></li>"
    )


def format_text(quiz) -> str:
    """Return a quiz as text, with the answers at the end."""
    lines = [quiz.title, ""]
    for number, question in enumerate(quiz.questions, start=1):
        lines += wrap_text(f"{number}. ", question.prompt)
        for letter, choice in zip(LETTERS, question.choices, strict=False):
            lines += wrap_text(f"   {letter}) ", choice.text)
        lines.append("")
    answers = (
        f"{number}{LETTERS[question.right]}"
        for number, question in enumerate(quiz.questions, start=1)
    )
    return "\n".join([*lines, f"Answers: {' '.join(answers)}"])


def wrap_text(label: str, text: str) -> list[str]:
    """Return a labelled text as lines with a hanging indent."""
    text = MARKED.sub(lambda found: found[1] or found[2], text)
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
    )
