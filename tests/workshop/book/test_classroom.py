"""Notebooks for classes: the stub earns nothing, the solution everything."""

import ast
import re

import nbformat
import pytest

from attnbook.grade import grade_notebook
from attnbook.grade.report import count_points
from workshop.book import classroom

PATHS = sorted(classroom.CHAPTERS.glob("[0-9][0-9]_*.md"))
pytestmark = pytest.mark.precision
each = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def graded(made, folder):
    nbformat.validate(made)
    nbformat.write(made, folder / "x.ipynb")
    return grade_notebook(folder / "x.ipynb")


@each
def test_the_teachers_notebook_gets_full_points(path, tmp_path):
    result = graded(classroom.make_teacher_notebook(path), tmp_path)
    assert not result["notes"]
    assert count_points(result)[0] == count_points(result)[1] > 0, result


@pytest.mark.parametrize("path", PATHS[::5], ids=lambda path: path.stem)
def test_the_students_notebook_runs_and_gets_no_points(path, tmp_path):
    made = classroom.make_student_notebook(path)
    result = graded(made, tmp_path)
    assert not result["notes"]
    verdicts = [x["verdict"] for x in result["exercises"].values()]
    assert {*verdicts} == {"… not attempted yet"}
    source = "\n".join(cell.source for cell in made.cells)
    assert "<details>" not in source
    assert not re.search(r"attnbook\.exercises\.\w+\.", source)


@each
def test_the_master_has_every_question_with_prompt_solution_and_test(path):
    made = classroom.make_master_notebook(path)
    nbformat.validate(made)
    asked = classroom.read_exercises(path)[1]
    raw = [cell.source for cell in made.cells if cell.cell_type == "raw"]
    assert sum(x.startswith("# BEGIN QUESTION") for x in raw) == len(asked)
    for cell in made.cells:
        if cell.cell_type == "code":
            ast.parse(cell.source)
