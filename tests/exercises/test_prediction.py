"""Predictions: plain questions in a notebook, and clear about bad input."""

import json
import re

import pytest

from attnbook.exercises.prediction import predict, predict_number

pytestmark = pytest.mark.precision

CHOICES = [("short", "They fit: $n < N$."), ("long", "One size for `all`.")]


def shown(question):
    bundle = question._repr_mimebundle_()
    html = bundle["text/html"]
    script = re.search(r"json\">(.*?)</script>(.*)</div>", html, re.DOTALL)
    return json.loads(script[1]), script[2], bundle["text/plain"]


def test_a_notebook_shows_a_plain_question_with_a_folded_answer():
    state, html, text = shown(predict("Which $n$ lose?", CHOICES, right=1))
    assert [x["right"] for x in state["question"]["choices"]] == [False, True]
    assert "<details><summary>Answer</summary>" in html
    assert html.index("short") < html.index("<details>")
    assert r"\(n &lt; N\)" in html
    assert text.splitlines() == [
        "Predict first: Which n lose?",
        "   a) short",
        "   b) long",
        "Measured: b",
    ]


def test_a_number_is_shown_with_three_digits_and_its_unit():
    question = predict_number("How many?", 0, 100, 62.4999, unit="%")
    state, html, text = shown(question)
    assert state["question"]["measured"] == "62.5"
    assert "How many? (0 to 100 %)" in html
    assert "The result is 62.5 %." in html
    assert text.endswith("Result: 62.5 %")


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: predict("?", CHOICES, 2), "`right` is 2 .* 0 to 1"),
        (lambda: predict_number("?", 0, 10, 12), "12 was .* from 0 to 10"),
    ],
)
def test_a_broken_prediction_is_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()
