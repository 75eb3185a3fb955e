"""Methods and tables look alike in all finished chapters."""

import json
from pathlib import Path

import pytest

from workshop.book.looks import find_faults
from workshop.chapters import read_unfinished

pytestmark = [
    pytest.mark.exact("reads sources and pages, and compares texts"),
    pytest.mark.precision,
]

CHAPTERS = [
    path
    for path in sorted(
        (Path(__file__).parents[3] / "chapters").glob("[0-9][0-9]_*.ipynb")
    )
    if path.stem not in read_unfinished()
]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_finished_chapter_makes_no_look_and_no_table_by_hand(path):
    cells = json.loads(path.read_text("utf8"))["cells"]
    faults = {
        number: found
        for number, cell in enumerate(cells)
        if cell["cell_type"] == "code"
        and (
            found := find_faults(
                "".join(cell["source"]),
                folded="plumbing" in cell["metadata"].get("tags", []),
            )
        )
    }
    assert not faults


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('x = get_style("dot product") | {"label": "dot"}', "changes the"),
        ('x = get_style(name) | {"color": "red"}', "changes the ['color']"),
        ('COLORS = {"attention": "blue", "fixed": "orange"}', "of colors"),
        ("ax.plot(x, color=PALETTE[COLORS[kind]])", "looks a color up"),
        ('ax.plot(x, label="attention")', "use get_style"),
        ('Markdown("| a | b |")', "calls Markdown()"),
        ('rows = ["| a | b |", "| --- | --- |"]', "joins a table by hand"),
        (
            'for a, b in x:\n    print(f"{a:9.1f} {b:6.1f}")',
            "prints rows of columns",
        ),
        (
            'for a, b in x:\n    print(f"{a:24}", *(f"{y:4.0f}" for y in b))',
            "prints rows of columns",
        ),
        (
            'for a, b in x:\n    if a:\n        print(f"{a:<9} {b:>6}")',
            "prints rows of columns",
        ),
    ],
)
def test_a_look_or_a_table_made_by_hand_is_found(source, fault):
    (found,) = find_faults(source)
    assert fault in found


@pytest.mark.parametrize(
    "source",
    [
        'ax.plot(x, **get_style("attention"))',
        'x = get_style("attention") | {"markersize": 3}',
        'ax.plot(x, color=PALETTE["blue"])',
        "ax.plot(x, color=PALETTE[tint])",
        'ax.plot(x, label="chance level")',
        'names = {"attention": "attention", "fixed": "one context vector"}',
        'show_table({"a": [1]}, ["b"])',
        'for n in x:\n    print(f"{n:3} · scores:", n)',
        'for a, b in x:\n    print(f"{a:.1f} and {b:.2f}")',
        'print(f"{a:9.1f} {b:6.1f}")',
    ],
)
def test_other_code_is_left_alone(source):
    assert find_faults(source) == []


def test_an_open_cell_may_print_rows_but_join_no_table():
    rows = 'for a, b in x:\n    print(f"{a:9.1f} {b:6.1f}")'
    assert find_faults(rows, folded=False) == []
    assert find_faults('Markdown("| a | b |")', folded=False) != []
