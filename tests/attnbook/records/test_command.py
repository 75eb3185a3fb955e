"""The command that says where a record comes from."""

import pytest

from attnbook.records import __main__ as command
from attnbook.records import list_records


def test_a_prefix_names_all_runs_that_begin_with_it(capsys):
    command.main(["grammar_"])
    text = capsys.readouterr().out
    assert all(f"{name}: `python -m" in text for name in list_records("grammar_"))
    assert "make evidence NAME=grammar_" in text


def test_an_unknown_run_is_refused_with_near_names(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["score_cost"])
    message = capsys.readouterr().err
    assert "no run begins with 'score_cost'; the nearest are scores_cost" in message
