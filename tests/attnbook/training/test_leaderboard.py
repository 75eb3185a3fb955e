"""The leaderboard against its records, and against counts made by hand."""

import pytest

from attnbook.records import read_record
from attnbook.training import leaderboard as board

ORDER = ["no attention", "Bahdanau", "Luong", "hybrid", "Transformer"]


def row(rows, model):
    (found,) = [r for r in rows if r["model"] == model]
    return found


def test_the_cmudict_leaderboard_has_every_model_in_order():
    rows = board.build_leaderboard("cmudict")
    assert [r["model"] for r in rows] == ORDER
    assert all(0 in r["seeds"] for r in rows)


@pytest.mark.parametrize(
    ("rows", "apart"),
    [
        (board.build_leaderboard("cmudict"), 1.03),
        # Chapter 3's runs with a general score are as wide as chapter 2's.
        (board.build_leaderboard("grammar"), 1.15),
    ],
)
def test_the_models_of_a_task_are_about_equally_large(rows, apart):
    sizes = [r["parameters"] for r in rows]
    assert max(sizes) < apart * min(sizes)


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


def test_groups_of_lengths_make_up_the_whole():
    found = row(board.build_leaderboard("cmudict"), "Transformer")
    record = board.find_records("cmudict", "Transformer")[0]
    counts = {
        f"{low}-{high}": sum(
            v["count"]
            for n, v in record["results"]["by_length"].items()
            if low <= int(n) <= high
        )
        for low, high in board.LENGTH_BANDS
    }
    total = sum(counts.values())
    assert total == 6000
    whole = sum(found["by_length"][k] * n for k, n in counts.items()) / total
    assert whole == pytest.approx(found["error"], abs=1e-5)


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


def test_a_mean_without_one_of_its_numbers_is_none():
    assert board.compute_mean([1.0, 2.0]) == 1.5
    assert board.compute_mean([1.0, None]) is None


def test_longer_sentences_are_harder():
    bands = ((3, 20), (21, 30), (31, 40))
    near = board.build_leaderboard("grammar", bands[:1])
    far = board.build_leaderboard("grammar", bands[1:], long=True)
    assert [r["model"] for r in near] == [r["model"] for r in far]
    for a, b in zip(near, far, strict=True):
        assert a["error"] < b["error"]


@pytest.mark.refusal
def test_an_unknown_model_is_named():
    with pytest.raises(ValueError, match="no model is 'x'; there are"):
        board.find_records("cmudict", "x")
