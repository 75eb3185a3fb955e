"""Notebooks to be graded: their cells, and what grading says of them."""

import json

from attnbook.grade import Limits, report

# Short, because each fault that never ends takes as long; little memory,
# because what fills it takes longer the more there is.
LIMITS = Limits(cell=1.0, whole=60.0, answer=2.0, grace=1.0, memory=1024, file=8)

IMPORT = "from attnbook.exercises.scaled_dot_product import check_{0}\n"
RIGHT = """
def my_weights(query, key):
    return (query * query.shape[-1] ** -0.5 @ key.mT).softmax(-1)
"""

WRONG = RIGHT.replace("-0.5", "0.0")

CHECK = IMPORT.format("weights") + "check_weights(my_weights)"

ATTEND = IMPORT.format("attend") + "check_attend({0})"


def write_notebook(path, *cells):
    """Write a notebook and return its path; without a path, return its bytes."""
    kinds = [
        {"cell_type": "code", "metadata": {}, "source": source} for source in cells
    ]
    text = json.dumps({"cells": kinds, "metadata": {}, "nbformat": 4})
    if path is None:
        return text.encode()
    path.write_text(text, "utf8")
    return path


def read_slug(result, name="check_weights"):
    return result["exercises"][name]["mistake"]


def read_points(result):
    return report.count_points(result)
