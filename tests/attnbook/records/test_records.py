"""Records are read, refused where they are broken, and fit shipped weights."""

import json

import pytest

from attnbook import records
from attnbook.records import __main__ as command
from attnbook.records import describe_provenance, list_records, load_record, read_record
from attnbook.training.run import find_records, load_trained, read_run
from attnbook.training.tasks import load_task
from workshop.experiments.scoring import score_alignment, score_sequences

SHIPPED = [p.stem for p in sorted(records.WEIGHTS.glob("*.safetensors"))]


@pytest.mark.precision
@pytest.mark.parametrize("name", [x for x in SHIPPED if "recipe" in read_record(x)])
def test_shipped_weights_give_the_recorded_results(name):
    model, data, _ = load_trained(name)
    results, pairs = read_record(name)["results"], data.splits.test
    found = score_sequences(data, model, pairs)
    del found["by_length"]
    if "alignment_error" in results:
        found |= score_alignment(data, model, pairs)
    for key, value in found.items():
        assert abs(value - results[key]) <= 0.003


def test_loading_a_record_prints_its_origin(capsys):
    name = list_records()[0]
    record = load_record(name)
    printed = capsys.readouterr().out
    assert printed == f"{describe_provenance(record)}\n" and name in printed
    assert f"{record['cpu_s'] / 60:.1f} CPU minutes" in printed
    load_record(name, say=False)
    assert capsys.readouterr().out == ""


def test_runs_with_an_lstm_or_less_data_are_not_on_the_leaderboard():
    names = [record["name"] for record in find_records("cmudict", "Bahdanau")]
    assert names == [f"cmudict_attention_{seed}" for seed in range(3)]
    names = [record["name"] for record in find_records("grammar", "Luong")]
    assert names == [f"grammar_luong_general_{seed}" for seed in range(3)]


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


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "broken at line 1, column 2"),
        ('{"name": "x"}', r"lacks \['command'"),
        (
            json.dumps(dict.fromkeys(records.REQUIRED_FIELDS, "y")),
            "holds the run 'y', not 'x'",
        ),
    ],
)
def test_a_broken_record_is_refused_in_one_sentence(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_record("x", tmp_path)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_record("x"), "no run is named 'x'"),
        (lambda: load_task("x"), "no task is named 'x'"),
        (lambda: load_trained("x"), "the weights of 'x'"),
        (
            lambda: read_run("projections"),
            "'projections' is not the record of a training run",
        ),
        (lambda: find_records("cmudict", "x"), "no model is 'x'; there are"),
    ],
)
def test_what_does_not_exist_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
