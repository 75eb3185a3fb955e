"""Otter-grader takes our assignments: right, wrong and empty submissions.

`make lab` makes an environment for this and runs it; `make test` has
no part of it.
"""

import json
import subprocess
import sys

import nbformat
import pytest

from workshop.book import classroom

SLUG = "04_scaled_dot_product"
PATH = classroom.CHAPTERS / f"{SLUG}.md"
WRONG = """
def my_attention_weights(query, key):
    return (query @ key.mT).softmax(-1)
"""


def otter(*words, folder):
    done = subprocess.run(
        [sys.executable, "-m", "otter", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def assigned(tmp_path_factory):
    """What `otter assign` makes: the student's notebook and the grader."""
    folder = tmp_path_factory.mktemp("otter")
    nbformat.write(classroom.make_master_notebook(PATH), folder / f"{SLUG}.ipynb")
    (folder / "requirements.txt").write_text("torch\nattnbook\n")
    otter("assign", f"{SLUG}.ipynb", "made", folder=folder)
    return folder / "made"


@pytest.fixture
def graded(assigned, tmp_path):
    """Grade the student's notebook with these answers filled in."""

    def run(answers):
        path = assigned / "student" / f"{SLUG}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        for name, source in answers.items():
            (cell,) = [
                x
                for x in notebook.cells
                if x.cell_type == "code" and f"def {name}(" in x.source
            ]
            assert "raise NotImplementedError" in cell.source
            cell.source = source
        nbformat.write(notebook, tmp_path / f"{SLUG}.ipynb")
        (grader,) = (assigned / "autograder").glob("*.zip")
        words = "run", "-a", grader, "-o", ".", f"{SLUG}.ipynb"
        otter(*words, folder=tmp_path)
        found = json.loads((tmp_path / "results.json").read_text())["tests"]
        return {
            task.check: next(
                (x["score"], x["max_score"], x["output"])
                for x in found
                if task.check.removeprefix("check_") in x["name"]
            )
            for task in classroom.read_exercises(PATH)[1]
        }

    return run


def solutions():
    found = {}
    for task in classroom.read_exercises(PATH)[1]:
        source = classroom.write_standalone_source(task.exercise)
        name, solution = task.function_name, task.exercise.solution.__name__
        found[name] = f"{source}\n\n\n{name} = {solution}"
    return found


def test_the_student_gets_stubs_without_solutions_and_tests(assigned):
    text = (assigned / "student" / f"{SLUG}.ipynb").read_text("utf8")
    assert "raise NotImplementedError" in text
    assert "SOLUTION" not in text
    for task in classroom.read_exercises(PATH)[1]:
        assert f"def {task.exercise.solution.__name__}(" not in text


def test_right_answers_get_every_point(graded):
    found = graded(solutions())
    assert all(score == most > 0 for score, most, _ in found.values()), found


def test_a_wrong_answer_gets_none_and_its_hint_arrives(graded):
    found = graded(solutions() | {"my_attention_weights": WRONG})
    score, _, message = found.pop("check_weights")
    assert score == 0
    assert "the scores are not divided by √D" in message
    assert "Reread the section “" in message
    assert all(score == most for score, most, _ in found.values())


def test_an_empty_submission_gets_nothing_and_is_told_so(graded):
    found = graded({})
    assert not sum(score for score, _, _ in found.values())
    assert all("not attempted yet" in message for _, _, message in found.values())
