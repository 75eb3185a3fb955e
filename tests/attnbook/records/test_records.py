import json
import threading
import time
from dataclasses import fields

import pytest
import torch

from attnbook import records
from attnbook.data import Pair
from attnbook.records import (
    describe_provenance,
    list_records,
    load_record,
    read_record,
)
from attnbook.training.scoring import (
    bootstrap_bleu,
    compute_shifted_error,
    make_validation_metrics,
    score_alignment,
)
from attnbook.training.tasks import (
    compute_error_rate,
    count_errors_by_length,
    load_task,
)
from attnbook.training.trained import load_trained
from workshop.experiments import __main__ as command
from workshop.experiments.cores import hold_cores
from workshop.experiments.record import make_record, round_floats, write_record
from workshop.experiments.registry import find_experiments
from workshop.experiments.runs import HEADS_RUNS, LEADER_RUNS, LUONG_RUNS, RUNS

SHIPPED = sorted(
    p.stem for p in records.WEIGHTS.glob("*.safetensors") if p.stem in RUNS
)


@pytest.mark.parametrize("name", list_records())
def test_every_record_says_how_it_was_made(name):
    record = read_record(name)
    assert record["command"] == f"python -m workshop.experiments {name}"
    assert record["cpu_s"] > 0
    assert record["versions"]["torch"]
    if name in RUNS:
        run = RUNS[name]
        assert record["recipe"]["seed"] == run.recipe.seed
        assert record["epochs"] <= record["recipe"]["epochs"]
        assert record["recipe"] == vars(run.recipe)
        model = {k: v for k, v in vars(run).items() if k != "recipe"}
        # A record made before a setting existed had its default.
        defaults = {f.name: f.default for f in fields(run) if f.name in model}
        assert defaults | record["model"] == model


def test_every_run_was_recorded():
    assert sorted(find_experiments()) == list_records()


def minutes(chosen):
    return sum(read_record(n)["cpu_s"] for n in chosen) / 60


def test_the_runs_of_a_chapter_stay_in_its_budget():
    assert minutes(LUONG_RUNS) <= 90
    assert minutes(HEADS_RUNS) <= 45
    assert minutes(LEADER_RUNS) <= 120
    others = LUONG_RUNS | HEADS_RUNS | LEADER_RUNS
    spine = [n for n in RUNS if n not in others]
    assert minutes([*spine, "context_probe"]) <= 90


@pytest.mark.precision
@pytest.mark.parametrize("name", SHIPPED)
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


def test_compared_models_have_about_equally_many_parameters():
    for name in ("cmudict", "libreoffice", "grammar"):
        with_it = read_record(f"{name}_attention_0")["parameters"]
        without = read_record(f"{name}_fixed_0")["parameters"]
        assert 0.9 < with_it / without < 1.1
        ours, theirs = RUNS[f"{name}_attention_0"], RUNS[f"{name}_fixed_0"]
        assert ours.recipe == theirs.recipe


# With checked types, the drawing of the sentences takes half a minute.
@pytest.mark.precision
def test_a_model_starts_the_same_from_the_same_seed():
    torch.manual_seed(5)
    first = RUNS["grammar_fixed_0"].model().state_dict()
    torch.manual_seed(6)
    second = RUNS["grammar_fixed_0"].model().state_dict()
    assert all(torch.equal(first[k], second[k]) for k in first)


def test_reading_backwards_reverses_the_source():
    forwards, backwards = (
        load_task("cmudict"),
        load_task("cmudict", backwards=True),
    )
    word = forwards.splits.test[0].source
    assert backwards.encode_source(word) == forwards.encode_source(word)[::-1]


PAIRS = [
    Pair(("a", "b"), ("x", "y"), (("x", "y"), ("z",))),
    Pair(("a", "b"), ("x",)),
    Pair(("a", "b", "c"), ("x", "y", "z", "z")),
]


def test_errors_by_length_are_counted_against_the_nearest_reference():
    table = count_errors_by_length([("z",), ("y",), ("x", "z")], PAIRS)
    assert table == {
        "2": {"count": 2, "wrong": 1, "edits": 1, "symbols": 2},
        "3": {"count": 1, "wrong": 1, "edits": 2, "symbols": 4},
    }
    assert compute_error_rate(table) == 2 / 3
    assert compute_error_rate(table, longest=2) == 1 / 2
    assert compute_error_rate(table, 3, 3, of="edits") == 1 / 2


def test_an_interval_contains_its_score():
    ours = ["le chat dort ici ce soir", "il pleut très fort ce matin"] * 4
    theirs = ["le chat dort ici ce matin", "il pleut fort ce matin"] * 4
    found = bootstrap_bleu(ours, theirs, draws=40)
    assert found["low"] <= found["bleu"] <= found["high"]
    assert found == bootstrap_bleu(ours, theirs, draws=40)


def test_links_are_moved_before_they_are_scored():
    class Known:
        source = ("a", "b", "c")
        sure = frozenset({(0, 1), (1, 2)})
        possible = sure

    links = [{(0, 0), (1, 1)}]
    assert compute_shifted_error(links, [Known], 0) == 1
    assert compute_shifted_error(links, [Known], 1) == 0


def test_a_record_is_written_and_read_back(tmp_path):
    made = make_record("a_run", [0], {"bleu": 12.3456789}, wall_s=1.0, cpu_s=0.5)
    write_record(made, tmp_path)
    back = read_record("a_run", tmp_path)
    assert back["results"] == {"bleu": 12.3457}
    assert "a_run" in describe_provenance(back)
    assert round_floats({"x": [1 / 3]}) == {"x": [0.333333]}


def test_loading_a_record_prints_its_origin(capsys):
    load_record(list_records()[0])
    assert list_records()[0] in capsys.readouterr().out
    load_record(list_records()[0], say=False)
    assert capsys.readouterr().out == ""


def test_runs_wait_for_a_free_core(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    order = []

    def work(name, threads):
        with hold_cores(threads, tmp_path):
            order.append(f"{name} in")
            time.sleep(0.3)
            order.append(f"{name} out")

    with hold_cores(1, tmp_path):
        whole = threading.Thread(target=work, args=("whole", 2))
        whole.start()
        time.sleep(0.5)
        assert order == []
    whole.join()
    pair = [threading.Thread(target=work, args=(n, 1)) for n in "ab"]
    [p.start() for p in pair]
    [p.join() for p in pair]
    assert order[:2] == ["whole in", "whole out"]
    assert {*order[2:4]} == {"a in", "b in"}


@pytest.mark.refusal
def test_more_threads_than_cores_are_refused(tmp_path):
    with (
        pytest.raises(ValueError, match="0 threads asked for"),
        hold_cores(0, tmp_path),
    ):
        pass


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
    with pytest.raises(ValueError, match="between 9 and 10"):
        compute_error_rate({"2": {}}, 9, 10)


def test_the_command_refuses_an_unknown_name(capsys):
    with pytest.raises(SystemExit) as end:
        command.main(["nothing"])
    assert end.value.code == 2
    assert "no run begins with ['nothing']" in capsys.readouterr().err


def test_the_monitored_score_is_of_held_out_pairs():
    data = load_task("grammar")
    look = make_validation_metrics("grammar", data)
    model = RUNS["grammar_fixed_0"].model().eval()
    found = look(model)
    assert found["valid_sequence_error"] > 0.9
    assert found["valid_symbol_error"] > 0.5
