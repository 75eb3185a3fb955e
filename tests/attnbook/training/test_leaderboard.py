"""The leaderboard against its records, and against counts made by hand."""

import pytest

from attnbook.records import read_record
from attnbook.training import leaderboard as board


def row(rows, model):
    (found,) = [r for r in rows if r["model"] == model]
    return found


def test_the_models_of_a_task_were_trained_by_one_recipe():
    for task in ("cmudict", "grammar", "libreoffice"):
        recipes = [
            {k: v for k, v in record["recipe"].items() if k != "seed"}
            for model in board.MODELS
            for record in board.find_records(task, model)
        ]
        assert recipes
        assert all(recipe == recipes[0] for recipe in recipes)


def test_a_row_is_the_mean_of_its_records():
    found = row(board.build_leaderboard("cmudict"), "Bahdanau")
    made = [read_record(f"cmudict_attention_{s}") for s in found["seeds"]]
    assert len(made) == 3  # the runs with an LSTM or less data do not count
    errors = [r["results"]["sequence_error"] for r in made]
    assert found["errors"] == errors
    assert found["error"] == pytest.approx(sum(errors) / 3)
    minutes = sum(r["cpu_s"] for r in made) / 180
    assert found["minutes"] == pytest.approx(minutes)


def test_minutes_to_an_error_add_up_the_epochs():
    record = {
        "history": [
            {"cpu_s": 60, "valid_sequence_error": 0.5},
            {"cpu_s": 30, "valid_sequence_error": 0.3},
            {"cpu_s": 90, "valid_sequence_error": 0.4},
        ]
    }
    assert board.find_minutes_to_error(record, 0.5) == 1
    assert board.find_minutes_to_error(record, 0.4) == 1.5
    assert board.find_minutes_to_error(record, 0.2) is None


@pytest.mark.refusal
def test_an_unknown_model_is_named():
    with pytest.raises(ValueError, match="no model is 'x'; there are"):
        board.find_records("cmudict", "x")
