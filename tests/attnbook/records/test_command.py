"""The command that says where a record comes from."""

import pytest

from attnbook.records import __main__ as command
from attnbook.records import list_records


def test_the_command_says_how_to_repeat_a_run(capsys):
    assert command.main(["scores_cost"]) == 0
    message = capsys.readouterr().out
    assert "scores_cost: `python -m workshop.experiments scores_cost`" in message
    assert "clone the book's repository" in message
    assert "make evidence NAME=scores_cost" in message


def test_a_prefix_names_all_runs_that_begin_with_it(capsys):
    command.main(["grammar_"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list_records("grammar_")) + 3


def test_an_unknown_run_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit) as end:
        command.main(["nothing"])
    assert end.value.code == 2
    text = capsys.readouterr().err
    assert "no run begins with 'nothing'" in text
    assert "scores_cost" in text
