"""Tables: one helper, aligned alike, and clear about rows that do not fit."""

import numpy as np
import pytest

from attnbook.figures import show_table, write_table

pytestmark = pytest.mark.precision

ROWS = {"attention": [12.34, (10.2, 14), "yes"], "none": [None, (3, 3), "a|b"]}
COLUMNS = ["error", "range", "note"]


def test_a_table_has_a_row_for_each_name():
    table = write_table(ROWS, COLUMNS, first="model", unit=["%", "", ""])
    assert table.splitlines() == [
        "| model | error | range | note |",
        "| --- | ---: | ---: | --- |",
        "| attention | 12.3 % | 10.2\u201314.0 | yes |",
        "| none | \u2013 | 3.0 | a\\|b |",
    ]


def test_whole_numbers_and_those_of_numpy_are_shown_alike():
    rows = {"a": [1_234_567, np.float64(2)], "b": [np.int64(3), True]}
    table = write_table(rows, ["n", "m"], digits=[0, 2])
    assert table.splitlines()[2:] == [
        "| a | 1,234,567 | 2.00 |",
        "| b | 3 | yes |",
    ]


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rows": {"a": [1]}}, r"row 'a' has 1 entries but there are 3"),
        ({"digits": [1, 2]}, "digits has 2 entries"),
        ({"unit": ["%"]}, "unit has 1 entries"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(how, message):
    given = {"rows": ROWS, "columns": COLUMNS} | how
    with pytest.raises(ValueError, match=message):
        write_table(**given)


def test_a_notebook_gets_markdown_and_text_that_nbval_can_compare(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    monkeypatch.setattr(
        "IPython.display.display",
        lambda bundle, **how: shown.append(bundle),
    )
    show_table({"a": [1.0]}, ["n"])
    table = write_table({"a": [1.0]}, ["n"])
    assert shown == [{"text/markdown": table, "text/plain": table}]


def test_outside_of_a_notebook_a_table_is_printed(capsys, monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    show_table({"a": [1.0]}, ["n"])
    assert capsys.readouterr().out == "|  | n |\n| --- | ---: |\n| a | 1.0 |\n"
