"""Grading of notebooks: `python -m attnbook.grade submission.ipynb ...`.

Reading order: `submission` (which cell checks what), `wire` (outcomes as
JSON), `fences` and `landlock` (limits of a process), `pristine` (torch as it
was), `barred` (what no attempt may call), `inside` (the process that runs a
student's code), `nursery` (which forks it and ends it), `room` (its other end),
`suspicion` (what a source alone gives away), `heard` (what the process said, as
trials), `outside` (one notebook's verdicts), `many` (all of them, in parallel),
`report` (CSV and JSON).

A student's code runs in a process of its own. It gets inputs; numbers come
back, and the verdict is reached here. What this cannot promise: a program that
is written to attack the grader runs as the same user. It can read what that
user can read, this book's solutions too, and where the platform has no fence
(see `fences`) it can do more. What it answers with may be computed by a
function of this book that it calls in a hidden way; a plain use of one is seen.
Grade strangers' notebooks in a container or as a user of their own.

Chapter: all of them
Source: none
Axes: none
"""
