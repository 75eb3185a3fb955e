"""Records are read, refused where they are broken, and fit shipped weights."""

import json

import pytest

from attnbook import records
from attnbook.records import describe_provenance, list_records, load_record, read_record
from attnbook.training.run import load_trained
from attnbook.training.tasks import (
    compute_error_rate,
    count_errors_by_length,
    load_task,
    score_alignment,
)

SHIPPED = [p.stem for p in sorted(records.WEIGHTS.glob("*.safetensors"))]


@pytest.mark.precision
@pytest.mark.parametrize("name", [x for x in SHIPPED if "recipe" in read_record(x)])
def test_shipped_weights_give_the_recorded_results(name):
    model, data, _ = load_trained(name)
    results = read_record(name)["results"]
    pairs = data.splits.test
    words = [data.targets.decode(f.ids) for f in data.generate(model, pairs)]
    error = compute_error_rate(count_errors_by_length(words, pairs))
    assert abs(error - results["sequence_error"]) <= 0.003
    if "alignment_error" in results:
        found = score_alignment(data, model, pairs, results["shift"])
        for key, value in found.items():
            assert abs(value - results[key]) <= 0.003


def test_loading_a_record_prints_its_origin(capsys):
    name = list_records()[0]
    record = load_record(name)
    printed = capsys.readouterr().out
    assert printed == f"{describe_provenance(record)}\n" and name in printed
    load_record(name, say=False)
    assert capsys.readouterr().out == ""


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "broken at line 1, column 2"),
        ("[]", "holds a list, not a run"),
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
def test_a_missing_record_is_named():
    with pytest.raises(ValueError, match="no run is named 'x'"):
        load_record("x")
    with pytest.raises(ValueError, match="no task is named 'x'"):
        load_task("x")
    with pytest.raises(ValueError, match="the weights of 'x'"):
        load_trained("x")
