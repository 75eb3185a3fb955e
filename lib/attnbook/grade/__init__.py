"""Grading of notebooks: `python -m attnbook.grade submission.ipynb ...`.

A student's code runs in processes of its own (`process`, `sandbox`), which send
data; the verdict is reached outside them (`judge`). A program that is written to
attack the grader can still read what its user can read, including this book's
solutions: grade notebooks of strangers in a container or as a separate user.
"""

import os

if not hasattr(os, "fork"):
    raise ImportError("grading needs Linux, macOS or WSL; this Python cannot fork")

from attnbook.grade.pool import grade_notebook
from attnbook.grade.report import write_results
from attnbook.grade.sandbox import Limits

__all__ = ["Limits", "grade_notebook", "write_results"]
