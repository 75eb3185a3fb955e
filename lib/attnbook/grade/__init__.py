"""Grading of notebooks: `python -m attnbook.grade submission.ipynb ...`.

Reading order: `command` (the command line), `pool` (`grade_notebook`, and many
notebooks in parallel), `notebook` (what a submission contains), `judge` (one
notebook's verdicts), `process` (runs a student's cells and answers), `sandbox`
and `seccomp` (limits of a process), `report` (CSV, JSON and a page).

A student's code runs in processes of its own, which send data; the verdict is
reached outside them. This has limits: a program that is written to attack the
grader runs as the same user. It can read whatever that user can read, including
this book's solutions, and where the platform lacks a limit (see `sandbox`) it
can do more. Grade notebooks of strangers in a container or as a separate user.
"""

import os

if not hasattr(os, "fork"):
    raise ImportError("grading needs Linux, macOS or WSL; this Python cannot fork")

from attnbook.grade.pool import grade_notebook
from attnbook.grade.report import write_results
from attnbook.grade.sandbox import Limits

__all__ = ["Limits", "grade_notebook", "write_results"]
