"""Folded solutions in the chapters are the tested ones, and none is missing."""

import ast
import builtins
import re
from pathlib import Path

import pytest

from attnbook.exercises import before_you_start, encoder_decoder
from workshop.book.solutions import (
    BLOCK,
    CELL,
    find_exercises,
    list_global_names,
    refresh_solutions,
    write_solution,
)

pytestmark = [
    pytest.mark.precision,
    pytest.mark.exact("reads sources and pages, and compares texts"),
]

CHAPTERS = sorted((Path(__file__).parents[3] / "chapters").glob("[0-9][0-9]_*.md"))
STUB = re.compile(r"raise NotImplementedError\n+(check_\w+)\(\w+\)\n```")
STALE = """from attnbook.exercises.before_you_start import check_softmax

<details>
<summary>Solution of <code>check_softmax</code></summary>

an older one

</details>
"""


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_solutions_in_the_chapter_are_the_tested_ones(chapter):
    text = chapter.read_text("utf8")
    assert refresh_solutions(text) == text, (
        f"run: python -m workshop.book.solutions chapters/{chapter.name}"
    )


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_every_exercise_has_its_solution_below(chapter):
    text = chapter.read_text("utf8")
    stubs = STUB.findall(text)
    assert len(stubs) >= 3
    assert BLOCK.findall(text) == stubs
    for name in stubs:
        assert text.index(f"{name}(my") < text.index(f"<code>{name}</code>")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_stars_and_minutes_are_those_of_the_exercise(chapter):
    text = chapter.read_text("utf8")
    for name in STUB.findall(text):
        exercise = find_exercises(text)[name]
        message = f"{'★' * exercise.stars} · {exercise.minutes} minutes"
        before = text[: text.index(f"{name}(my")]
        assert re.findall(r"★+ · \d+ minutes", before)[-1] == message, name


def run_imports(text):
    """Return the names that the imports of a text's cells bind."""
    names = {}
    for cell in CELL.findall(text):
        tree = ast.parse(cell)
        tree.body = [x for x in tree.body if isinstance(x, ast.Import | ast.ImportFrom)]
        exec(compile(tree, "imports", "exec"), names)
    return names


def find_undefined(source, names):
    """Return the names that pasted code reads and that nothing defines."""
    code = compile(source, "solution", "exec")
    exec(code, names)
    return list_global_names(code) - names.keys() - set(dir(builtins))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_a_solution_can_be_pasted_below_the_chapters_imports(chapter):
    text = chapter.read_text("utf8")
    exercises = find_exercises(text)
    for block in BLOCK.finditer(text):
        names = run_imports(text[: block.start()])
        source = re.search(r"```python\n(.*?)^```", block[0], re.S | re.M)[1]
        assert not find_undefined(source, names), block[1]
        solution = exercises[block[1]].solution
        own = solution.__globals__
        for name in list_global_names(solution.__code__) & own.keys():
            shown = re.search(rf"(?m)^def {name}\(", source)
            assert shown or names[name] is own[name], (block[1], name)


def test_an_undefined_name_in_a_solution_is_found():
    assert find_undefined("def f(x):\n    return differ(x)", {}) == {"differ"}
    source = "def f(x: 'Tensor'):\n    return max(x).item(), [y for y in x]"
    assert find_undefined(source, {}) == set()
    assert find_undefined("def f(x):\n    return g(x)", {"g": abs}) == set()


@pytest.mark.parametrize("imported", [True, False])
def test_imports_are_those_that_the_chapter_lacks(imported):
    cell = "```{code-cell} ipython3\n:tags: [setup]\n\nimport torch\n```\n"
    text = STALE.replace("before_you_start", "scaled_dot_product").replace(
        "check_softmax", "check_attention_fault"
    )
    fresh = refresh_solutions(imported * cell + text)
    lines = [] if imported else ["import torch"]
    lines += [
        "from collections.abc import Callable",
        "from torch import Tensor",
        "from attnbook.exercises.faults import differ",
        "from attnbook.exercises.inputs import draw_normal",
    ]
    shown = fresh[fresh.index("```python\n") :].splitlines()[1:]
    assert shown[: len(lines) + 1] == [*lines, ""]


def test_a_stale_solution_is_replaced():
    fresh = refresh_solutions(STALE)
    assert "an older one" not in fresh
    assert write_solution("check_softmax", before_you_start.check_softmax) in fresh
    assert "def softmax(" in fresh
    assert refresh_solutions(fresh) == fresh


def test_a_solution_is_shown_after_the_functions_that_it_calls():
    exercise = encoder_decoder.check_encoder_fault
    shown = write_solution("check_encoder_fault", exercise)
    found = re.findall(r"(?m)^def (\w+)\(", shown)
    assert found == [
        "reads_padding",
        "mixes_sequences",
        "ignores_symbol",
        "encoder_fault",
    ]


@pytest.mark.refusal
def test_a_solution_without_an_exercise_is_refused():
    stale = STALE.replace(
        "Solution of <code>check_softmax", "Solution of <code>check_sofmax"
    )
    with pytest.raises(ValueError, match=r"check_sofmax .*check_softmax"):
        refresh_solutions(stale)
