"""Notebooks for a class: for students, for teachers, and for otter-grader.

A chapter's section of exercises, as it stands: the student's notebook has the
stubs, the teacher's the solutions and the mistakes that the checks know, and
the master notebook is what `otter assign` takes. `python -m
workshop.book.classroom FOLDER` writes all three for every chapter.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jupytext
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

from attnbook.exercises.declare import Exercise
from attnbook.exercises.kernels import KernelExercise
from workshop.book import repository
from workshop.book.notebook import KERNEL
from workshop.book.solutions import BLOCK, find_exercises, write_source

CHAPTERS = Path("chapters")


@dataclass(frozen=True)
class ChapterExercise:
    """One exercise of a chapter: its text, its stub, its check."""

    text: str
    stub: str
    check: str
    exercise: Exercise

    @property
    def function_name(self) -> str:
        return next(
            node.name
            for node in ast.parse(self.stub).body
            if isinstance(node, ast.FunctionDef)
        )


@cache
def read_exercises(path: Path) -> tuple[str, tuple[ChapterExercise, ...]]:
    """Return a chapter's title and the exercises of its last section."""
    text = path.read_text("utf8")
    known, found, prose, within = find_exercises(text), [], "", False
    notebook = jupytext.reads(text, "md:myst")
    heading = re.search(r"^# (.+)$", text, re.M).group(1)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            words = BLOCK.sub("", cell.source)
            if re.search(r"^## Exercises$", words, re.M):
                within = True
                words = words[words.index("## Exercises") :]
            words, end, _ = words.partition("\n## ")
            prose = f"{prose}\n\n{words}".strip() if within else ""
            within = within and not end and not words.startswith("## Quiz")
        elif within and (check := re.search(r"\b(check_\w+)\(", cell.source)):
            name = check.group(1)
            found.append(ChapterExercise(prose, cell.source, name, known[name]))
            prose = ""
    return heading, tuple(found)


def make_notebook(cells: list) -> nbformat.NotebookNode:
    """Return a notebook whose cells are named by their places."""
    made = new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"
    return made


def write_setup_cell() -> str:
    """Return the first code cell: it checks that attnbook is installed.

    A notebook that is handed out is opened alone, as a downloaded chapter is.
    """
    return repository.set_cell("import torch", repository.read_address())


def make_student_notebook(path: Path) -> nbformat.NotebookNode:
    heading, exercises = read_exercises(path)
    cells = [new_markdown_cell(f"# {heading}"), new_code_cell(write_setup_cell())]
    for task in exercises:
        cells += new_markdown_cell(task.text), new_code_cell(task.stub)
    return make_notebook(cells)


def make_teacher_notebook(path: Path) -> nbformat.NotebookNode:
    heading, exercises = read_exercises(path)
    head = f"# {heading}\n\nFor teachers: solutions, and what is known by name."
    cells = [new_markdown_cell(head), new_code_cell(write_setup_cell())]
    for task in exercises:
        cells += [
            new_markdown_cell(task.text),
            new_code_cell(write_solved_cell(task)),
            new_markdown_cell(list_mistakes(task.exercise)),
        ]
    return make_notebook(cells)


def write_solved_cell(task: ChapterExercise) -> str:
    head = task.stub.partition("\n\n\n")[0]
    exercise = task.exercise
    tail = f"{task.function_name} = {exercise.solution.__name__}"
    last = f"{task.check}({task.function_name})"
    source = write_source(exercise)
    return f"{head}\n{source}\n\n\n{tail}\n{last}"


def make_master_notebook(path: Path) -> nbformat.NotebookNode:
    """Return the notebook that `otter assign` takes, of otter-grader 7."""
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
    source = write_source(task.exercise)
    solution = task.exercise.solution.__name__
    hidden = f"{source}\n\n\n{task.function_name} = {solution}"
    head, stub, _ = task.stub.split("\n\n\n")
    # A decorator needs what is imported beside the check.
    needed = "".join(f"{x}\n\n\n" for x in head.splitlines() if task.check not in x)
    return (
        f"# BEGIN PROMPT\n{needed}{stub}\n# END PROMPT\n\n\n"
        f"# BEGIN SOLUTION\n{hidden}\n# END SOLUTION"
    )


def write_test(task: ChapterExercise) -> str:
    module = task.stub.partition(" import ")[0]
    # Otter knows no third state: where Triton is missing, no kernel fails.
    kernel = isinstance(task.exercise, KernelExercise)
    free = f" or not {task.check}.runs_here" if kernel else ""
    return (
        f"def test_{task.check.removeprefix('check_')}({task.function_name}):\n"
        f"    {module} import {task.check}\n\n"
        f"    verdict = {task.check}({task.function_name})\n"
        f"    assert verdict{free}, verdict"
    )


def list_mistakes(exercise: Exercise) -> str:
    rows = [f"- `{m.slug}`: {m.because}." for m in exercise.mistakes]
    return "\n".join(["The check knows these mistakes by name:", "", *rows])


def main(folder: str) -> None:
    makers = {
        "student": make_student_notebook,
        "teacher": make_teacher_notebook,
        "master": make_master_notebook,
    }
    for path in sorted(CHAPTERS.glob("[0-9][0-9]_*.md")):
        target = Path(folder) / path.stem
        for kind, make in makers.items():
            (target / kind).mkdir(parents=True, exist_ok=True)
            nbformat.write(make(path), target / kind / f"{path.stem}.ipynb")
        wanted = target / "master/requirements.txt"
        wanted.write_text("torch>=2.11\nattnbook[kernels]\n", "utf8")
        print(f"wrote {target}: {', '.join(makers)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
