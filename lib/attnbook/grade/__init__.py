"""Grading of notebooks: `python -m attnbook.grade submission.ipynb ...`.

Reading order: `submission` (which cell checks what), `wire` (outcomes as
JSON), `fences` (limits of a process), `pristine` (torch as it was), `inside`
(the process that runs a student's code), `room` (its other end), `suspicion`
(what a source alone gives away), `heard` (what the process said, as trials),
`outside` (one notebook's verdicts), `many` (all of them, in parallel),
`report` (CSV and JSON).

A student's code runs in a process of its own. It gets inputs; numbers come
back, and the verdict is reached here. What this cannot promise: a program that
is written to attack the grader runs as the same user. It can read what that
user can read, and where the platform has no fence (see `fences`) it can do
more. It might also compute a right answer with a forbidden function and hide
that from the look-out inside its own process; a plain use of one is seen in its
source as well. Grade strangers' notebooks in a container or as a user of their
own.

Chapter: all of them
Source: none
Axes: none
"""
