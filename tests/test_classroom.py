"""Notebooks for classes: the stub earns nothing, the solution everything."""

import ast

import nbformat
import pytest

from attnbook.book import classroom
from attnbook.book.otter import master
from attnbook.grade.outside import grade
from attnbook.grade.report import points

PATHS = sorted(classroom.CHAPTERS.glob("[0-9][0-9]_*.md"))
each = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def graded(made, folder):
    nbformat.validate(made)
    nbformat.write(made, folder / "x.ipynb")
    return grade(folder / "x.ipynb")


@pytest.mark.precision
@each
def test_the_teachers_notebook_gets_every_point(path, tmp_path):
    result = graded(classroom.teacher(path), tmp_path)
    assert not result["notes"]
    assert points(result)[0] == points(result)[1] > 0, result


@pytest.mark.precision
@each
def test_the_students_notebook_runs_and_gets_none(path, tmp_path):
    made = classroom.student(path)
    result = graded(made, tmp_path)
    assert not result["notes"]
    verdicts = [x["verdict"] for x in result["exercises"].values()]
    assert {*verdicts} == {"… not attempted yet"}
    source = "\n".join(cell.source for cell in made.cells)
    assert "<details>" not in source
    assert "attnbook.solutions" not in source


@each
def test_the_master_has_every_question_with_prompt_solution_and_test(path):
    made = master(path)
    nbformat.validate(made)
    asked = classroom.tasks(path)[1]
    assert len(asked) >= 3
    raw = [cell.source for cell in made.cells if cell.cell_type == "raw"]
    assert sum(x.startswith("# BEGIN QUESTION") for x in raw) == len(asked)
    for cell in made.cells:
        if cell.cell_type == "code":
            ast.parse(cell.source)
