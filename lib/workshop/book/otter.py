"""The master notebook that `otter assign` takes, for otter-grader 7.

Otter itself is not imported: it lives in an environment of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell

from workshop.book.classroom import (
    ChapterExercise,
    make_notebook,
    read_exercises,
    write_setup_cell,
    write_standalone_source,
)


def make_master_notebook(path: Path) -> nbformat.NotebookNode:
    """Return the notebook that `otter assign` takes."""
    heading, exercises = read_exercises(path)
    config = (
        "# ASSIGNMENT CONFIG\ninit_cell: false\nexport_cell: false\n"
        "generate: true\nfiles: []\nrequirements: requirements.txt\n"
        "tests:\n  ok_format: false\n  files: true"
    )
    cells = [
        *(new_raw_cell(config), new_markdown_cell(f"# {heading}")),
        new_code_cell(
            f"{write_setup_cell()}\nimport otter\n\ngrader = otter.Notebook()"
        ),
    ]
    for task in exercises:
        cells += make_question(task)
    return make_notebook(cells)


def make_question(task: ChapterExercise) -> Iterator:
    """Yield the cells of one question in otter's format."""
    name = task.check.removeprefix("check_")
    points = f"points: {task.exercise.stars}"
    yield new_raw_cell(f"# BEGIN QUESTION\nname: {name}\n{points}")
    yield new_markdown_cell(task.text)
    yield new_raw_cell("# BEGIN SOLUTION")
    yield new_code_cell(write_solution_cell(task))
    yield new_raw_cell("# END SOLUTION")
    yield new_raw_cell("# BEGIN TESTS")
    yield new_code_cell(write_test(task))
    yield new_raw_cell("# END TESTS")
    yield new_raw_cell("# END QUESTION")


def write_solution_cell(task: ChapterExercise) -> str:
    """Return the solution's cell; otter leaves the stub of it for students."""
    source = write_standalone_source(task.exercise)
    solution = task.exercise.solution.__name__
    hidden = f"{source}\n\n\n{task.function_name} = {solution}"
    lines = task.stub.splitlines()
    start = next(i for i, x in enumerate(lines) if x.startswith("def "))
    stop = next(i for i, x in enumerate(lines) if "raise NotImplementedError" in x)
    stub = "\n".join(lines[start : stop + 1])
    return (
        f"# BEGIN PROMPT\n{stub}\n# END PROMPT\n\n\n"
        f"# BEGIN SOLUTION\n{hidden}\n# END SOLUTION"
    )


def write_test(task: ChapterExercise) -> str:
    """Return the test; its exception's text is the hint."""
    module = task.stub.partition(" import ")[0]
    return (
        f"def test_{task.check.removeprefix('check_')}({task.function_name}):\n"
        f"    {module} import {task.check}\n\n"
        f"    verdict = {task.check}({task.function_name})\n"
        "    assert verdict, verdict"
    )
