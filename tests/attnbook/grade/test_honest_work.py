"""Honest work counts: as IPython runs it, however a check is named and called.

What is not graded is named with the reason.
"""

import json

import pytest

from attnbook.grade import source_check, submission
from attnbook.grade.notebook_grader import find_exercises
from notebooks import (
    ATTEND,
    CHECK,
    IMPORT,
    RIGHT,
    WRONG,
    read_points,
    read_slug,
)
from sandbox_limits import IN_SANDBOX

pytestmark = IN_SANDBOX

CHAPTER = "attnbook.exercises.scaled_dot_product"

# Cells after a right answer, that check it.
WAYS = {
    "another name": f"from {CHAPTER} import check_weights as cw\ncw(my_weights)",
    "by keyword": IMPORT.format("weights") + "check_weights(attempt=my_weights)",
    "the chapter": "from attnbook.exercises import scaled_dot_product\n"
    "scaled_dot_product.check_weights(my_weights)",
    "the chapter, by another name": "from attnbook.exercises import "
    "scaled_dot_product as s\ns.check_weights(my_weights)",
    "the chapter in full": f"import {CHAPTER}\n{CHAPTER}.check_weights(my_weights)",
    "a star": f"from {CHAPTER} import *\ncheck_weights(my_weights)",
    "the module of the exercise": f"from {CHAPTER}.weights import "
    "check_weights\ncheck_weights(my_weights)",
    "a loop": f"from {CHAPTER} import check_weights, check_attend\n"
    "for check, mine in [(check_weights, my_weights), (check_attend, len)]:\n"
    "    print(check(mine))",
    "a dictionary": IMPORT.format("weights")
    + "checks = {'w': check_weights}\nchecks['w'](my_weights)",
    "a function": IMPORT.format("weights")
    + "def grade(check, mine):\n    assert check(mine)\n"
    "grade(check_weights, my_weights)",
    "map": IMPORT.format("weights") + "list(map(check_weights, [my_weights]))",
    "importlib": f"import importlib\nm = importlib.import_module('{CHAPTER}')\n"
    "getattr(m, 'check_weights')(my_weights)",
    "%%time": "%%time\n" + CHECK,
    "%%capture": f"%%capture out\n{CHECK}",
    "%%capture, used": f"%%capture out\n{CHECK}\nprint(out.stdout)",
    "%%capture and %%time": f"%%capture\n%%time\n{CHECK}",
    "%time": IMPORT.format("weights") + "%time check_weights(my_weights)",
    "%time, assigned": IMPORT.format("weights")
    + "verdict = %time check_weights(my_weights)\nassert verdict",
    "%timeit": IMPORT.format("weights")
    + "if True:\n    %timeit -n 1 -r 1 check_weights(my_weights)",
    "a semicolon": IMPORT.format("weights") + "check_weights(my_weights);",
    "prompts": "".join(f">>> {x}\n" for x in CHECK.splitlines()),
    "indented": "".join(f"    {x}\n" for x in CHECK.splitlines()),
    "an answer of its own cell": "get_ipython()\n" + CHECK,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_of_calling_a_check_is_graded(graded, way):
    result = graded(RIGHT, way)
    assert (result["error"], result["notes"]) == (None, [])
    assert result["exercises"]["check_weights"]["points"] == 1


def test_a_wrong_answer_is_refused_in_every_way_of_calling(graded):
    ways = [x for x in WAYS.values() if "out.stdout" not in x]
    for way in ways[::4]:
        assert read_slug(graded(WRONG, way)) == "no-scale"


PLAIN = {
    "a comment that asks": "def my_weights(query, key):\n"
    "    # is this right?\n    d = query.shape[-1]  # why the root?\n"
    "    return (query * d ** -0.5 @ key.mT).softmax(-1)\n",
    "a docstring that asks": 'def my_weights(query, key):\n    """How?\n\n'
    "    What does this do?\n    ! Careful\n    % of weights\n    ?\n"
    '    """\n    return (query * query.shape[-1] ** -0.5 @ key.mT)'
    ".softmax(-1)\n",
    "a line that begins with %": "def my_weights(query, key):\n"
    "    odd = (7\n    % 4)\n    assert odd == 3\n"
    "    text = '''\n%time never\n!rm -r never\n'''\n    assert 'rm' in text\n"
    "    return (query * query.shape[-1] ** -0.5 @ key.mT).softmax(-1)\n",
    "shell and help": "!pip install torch\nfiles = !ls\nlen(files)\n"
    "%matplotlib inline\nlen?\n?len\n"
    "%config InlineBackend.figure_format='svg'\n"
    f"{RIGHT}",
}


@pytest.mark.parametrize("cell", PLAIN.values(), ids=PLAIN)
def test_a_cell_is_read_as_ipython_reads_it(graded, cell):
    result = graded(cell, CHECK)
    assert (result["error"], result["notes"]) == (None, [])
    assert result["exercises"]["check_weights"]["points"] == 1


def test_an_attempt_is_judged_as_it_was_when_its_check_ran(graded):
    helper = (
        "def scale(query):\n    return query.shape[-1] ** -0.5\n"
        "def my_weights(query, key):\n"
        "    return (query * scale(query) @ key.mT).softmax(-1)\n"
    )
    later = "def scale(query):\n    return 1.0\n"
    assert read_points(graded(helper, CHECK, later))[0] == 1
    # Within one cell, too, and for a wrong answer that is mended later.
    assert read_points(graded(f"{helper}{CHECK}\n{later}"))[0] == 1
    assert read_slug(graded(later + helper.split("def my")[0], CHECK))
    broken = f"{helper}{later}"
    assert read_slug(graded(broken, CHECK, helper)) == "no-scale"


def test_the_last_attempt_counts_and_a_stub_takes_nothing_back(graded):
    stub = "def my_weights(*x):\n    raise NotImplementedError\n"
    assert read_points(graded(WRONG, CHECK, RIGHT, CHECK))[0] == 1
    assert read_slug(graded(RIGHT, CHECK, WRONG, CHECK)) == "no-scale"
    assert read_points(graded(RIGHT, CHECK, stub, CHECK))[0] == 1
    assert read_slug(graded(stub, CHECK)) is None


def test_an_attempt_changes_nothing_that_later_cells_see(graded):
    ends = (
        "import os, torch\ncount = 0\n"
        "def bad(*x):\n    global count\n    count += 1\n"
        "    torch.Tensor.mine = 1\n    os._exit(0)\n"
    )
    look = "assert count == 0\nassert not hasattr(torch.Tensor, 'mine')"
    result = graded(ends, ATTEND.format("bad"), look, RIGHT, CHECK)
    assert result["notes"] == []
    assert result["exercises"]["check_weights"]["points"] == 1


def test_a_ready_made_attention_may_be_compared_with_after_a_check(graded):
    compare = (
        "import torch\nfrom torch.nn import functional as F\n"
        "x = torch.zeros(1, 2, 3)\n"
        "F.scaled_dot_product_attention(x, x, x)\n"
    )
    mine = (
        "def my_attend(query, key, value, mask):\n"
        "    s = query @ key.mT / query.shape[-1] ** 0.5\n"
        "    if mask is not None: s = s.masked_fill(~mask, -float('inf'))\n"
        "    return s.softmax(-1).nan_to_num(0.0) @ value\n"
    )
    cells = mine, ATTEND.format("my_attend") + f"\n{compare}", RIGHT, CHECK
    result = graded(*cells)
    assert result["notes"] == []
    assert result["exercises"]["check_weights"]["points"] == 1


def test_a_students_own_patch_serves_later_cells(graded):
    patch = "import torch\ntorch.Tensor.doubled = lambda x: x + x\n"
    use = "assert torch.ones(1).doubled().item() == 2\n"
    result = graded(patch, RIGHT, f"{CHECK}\n{use}", use)
    assert result["notes"] == []


# Cells with a check that is not graded, and the reason that the report gives.
REASONS = {
    "a function that is never called": (
        f"def later():\n    {CHECK.replace(chr(10), chr(10) + '    ')}",
        "… not graded: cell 2 names it, but no call ran",
    ),
    "a cell that fails before": (f"1 / 0\n{CHECK}", "ZeroDivisionError"),
    "a cell that is no Python": (f"{CHECK}\nf(", "SyntaxError"),
    "a cell magic": (f"%%script python\n{CHECK}", "%%script is not executed"),
    "a thread": (
        f"import threading\n{IMPORT.format('weights')}"
        "t = threading.Thread(target=check_weights, args=[my_weights])\n"
        "t.start(); t.join()",
        "… not graded: cell 2 names it, but no call ran",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_is_not_graded_is_named_with_the_reason(graded, name):
    cell, reason = REASONS[name]
    result = graded(IMPORT.format("attend") + RIGHT, cell)
    assert reason in result["exercises"]["check_weights"]["verdict"]
    assert read_points(result)[0] == 0


def test_naming_a_module_in_a_comment_changes_no_points(graded):
    plain = read_points(graded(RIGHT, CHECK))
    for extra in (
        "# see attnbook.exercises.luong and attnbook.exercises.masks",
        "text = 'import attnbook.exercises.luong'",
        '"""\nfrom attnbook.exercises.luong import check_two_factors\n"""',
        "x = 1  # from attnbook.exercises.luong import check_two_factors",
    ):
        assert read_points(graded(RIGHT, CHECK, extra)) == plain
    both = graded(RIGHT, CHECK, "from attnbook.exercises import luong")
    more = sum(x.stars for x in find_exercises(["luong"]).values())
    assert read_points(both) == (plain[0], plain[1] + more)


def test_checks_of_one_name_in_two_chapters_are_both_graded(graded):
    first = (
        "from attnbook.exercises import before_you_start as b\n"
        "from attnbook.exercises import scaled_dot_product as s\n"
        "b.check_gradient(len)\ns.check_gradient(3)"
    )
    result = graded(first)
    assert read_slug(result, "check_gradient") == "type"
    name = "check_gradient (scaled_dot_product)"
    assert read_slug(result, name) == "not-a-function"


def test_a_check_in_a_long_loop_is_graded_and_named(graded, monkeypatch):
    monkeypatch.setattr("attnbook.grade.notebook_grader.MOST_CALLS", 3)
    loop = f"{CHECK}\nfor _ in range(5):\n    check_weights(my_weights)"
    result = graded(RIGHT, loop)
    assert read_points(result)[0] == 1
    assert "more than 3 times" in result["notes"][0]


def test_a_ready_made_attention_is_found_behind_every_way_of_calling(graded):
    ready = (
        "import sys, torch.nn.functional as F\ndef my_attend(q, k, v, m):\n"
        "    sys.setprofile(None)\n"
        "    return F.scaled_dot_product_attention(q, k, v, m)\n"
    )
    for way in (
        f"from {CHAPTER} import check_attend as c\nc(attempt=my_attend)",
        f"from {CHAPTER} import check_attend\n"
        "for c, f in [(check_attend, my_attend)]: c(f)",
    ):
        assert read_slug(graded(ready, way), "check_attend") == "ready-made"


def test_the_source_of_a_loop_over_checks_is_searched():
    """Without the guard: the search alone must find it."""
    cell = {
        "cell_type": "code",
        "source": f"from {CHAPTER} import check_attend\n"
        "import torch.nn.functional as F\n"
        "F.scaled_dot_product_attention\n"
        "mine = lambda *x: {}(*x)\n"
        "for c, f in [(check_attend, mine)]: c(f)",
    }
    key = "scaled_dot_product.check_attend"
    exercise = find_exercises(["scaled_dot_product"])[key]
    about = {key: (exercise.forbidden, exercise.solution.__name__)}
    for call, found in (
        ("F.scaled_dot_product_attention", "scaled_dot_product_attention"),
        ("own", None),
    ):
        code = {**cell, "source": cell["source"].format(call)}
        done = submission.prepare(json.dumps({"cells": [code]}).encode())
        assert source_check.search(done, about) == {1: {key: found}}
