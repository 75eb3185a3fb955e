"""Grading of notebooks: `python -m attnbook.grade submission.ipynb ...`.

Reading order: `files` (reads a submission), `submission` (which cell checks
what), `messages` (outcomes as JSON), `process_limits`, `landlock` and
`seccomp` (limits of a process), `clock` (ends a cell that does not stop),
`snapshots` (restores torch), `blocked_kernels` (what no attempt may call),
`student_process` (runs a student's code), `fork_server` (forks and kills it),
`sandbox` (the grader's end of it), `source_check` (a search of the source),
`trials` (the outcomes that the process sent), `notebook_grader` (one
notebook's verdicts), `batch` (many notebooks, in parallel), `report` (CSV and
JSON), `class_report` (a page), `shards` (parts of a class, and merging them),
`cluster_worker` and `cluster` (a Dask cluster).

A student's code runs in its own process. The process receives inputs and
returns numbers; the verdict is reached outside it. This has limits: a program
that is written to attack the grader runs as the same user. It can read whatever
that user can read, including this book's solutions, and where the platform
lacks a limit (see `process_limits`) it can do more. It may compute its results
with a function of this book that it calls in a hidden way; a plain call is
detected.
Grade notebooks of strangers in a container or as a separate user.
"""
